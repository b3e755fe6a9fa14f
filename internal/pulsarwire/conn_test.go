package pulsarwire

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headrace/headrace/internal/proof/leaks"
)

// broker is a scripted broker on loopback. Its functions say what it answers.
type broker struct {
	t    testing.TB
	l    net.Listener
	work sync.WaitGroup

	login  func(*peer, asked)
	lookup func(asked) fields // the fields of its CommandLookupTopicResponse, without the request's number
	flow   func(*peer, asked)

	mu    sync.Mutex
	peers []*peer
}

// peer is the broker's end of a connection.
type peer struct {
	b   *broker
	net net.Conn
	mu  sync.Mutex

	consumer uint64 // the last consumer that has subscribed
	start    asked  // where this consumer begins
}

// asked has the numbers and texts of a command, by field.
type asked struct {
	kind    uint64
	numbers map[protowire.Number]uint64
	texts   map[protowire.Number][]byte
}

func parse(b []byte) asked {
	a := asked{numbers: map[protowire.Number]uint64{}, texts: map[protowire.Number][]byte{}}
	_ = eachField(b, func(n protowire.Number, number uint64, bytes []byte) {
		if a.numbers[n] = number; bytes != nil {
			a.texts[n] = bytes
		}
	})
	return a
}

func newBroker(t testing.TB) *broker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{t: t, l: l}
	b.login = func(p *peer, _ asked) { p.send(base(cmdConnected, fields(nil).text(1, "test").number(2, 20))) }
	b.lookup = func(asked) fields { return fields(nil).text(1, "pulsar://"+b.address()).number(3, 1) }
	b.flow = func(*peer, asked) {}
	b.work.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			p := &peer{b: b, net: nc}
			b.mu.Lock()
			b.peers = append(b.peers, p)
			b.mu.Unlock()
			b.work.Go(p.run)
		}
	})
	t.Cleanup(func() { b.close(); b.work.Wait() })
	return b
}

func (b *broker) address() string { return b.l.Addr().String() }

func (b *broker) close() {
	_ = b.l.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.peers {
		_ = p.net.Close()
	}
}

func (p *peer) send(command fields) { p.sendWith(command, nil) }

func (p *peer) sendWith(command fields, payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := binary.BigEndian.AppendUint32(nil, uint32(4+len(command)+len(payload)))
	f = binary.BigEndian.AppendUint32(f, uint32(len(command)))
	_, _ = p.net.Write(append(append(f, command...), payload...))
}

func (p *peer) entry(ledger, entry uint64, frame []byte) {
	id := fields(nil).number(1, ledger).number(2, entry)
	p.sendWith(base(cmdMessage, fields(nil).number(1, p.consumer).bytes(2, id)), frame)
}

func (p *peer) run() {
	defer p.net.Close()
	r := bufio.NewReader(p.net)
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:])-4)
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		all := parse(body)
		kind := all.numbers[1]
		a := parse(all.texts[protowire.Number(kind)])
		a.kind = kind
		switch kind {
		case cmdConnect, cmdAuthResponse:
			p.b.login(p, a)
		case cmdLookup:
			p.send(base(cmdLookupResponse, p.b.lookup(a).number(4, a.numbers[2])))
		case cmdSubscribe:
			p.consumer, p.start = a.numbers[4], parse(a.texts[9])
			p.send(base(cmdSuccess, fields(nil).number(1, a.numbers[5])))
		case cmdFlow:
			p.b.flow(p, a)
		case cmdCloseConsumer:
			p.send(base(cmdSuccess, fields(nil).number(1, a.numbers[2])))
		case cmdPing:
			p.send(base(cmdPong, nil))
		}
	}
}

func newTestClient(t testing.TB, o Config) *Client {
	t.Helper()
	if !strings.Contains(o.Service, "://") {
		o.Service = "pulsar://" + o.Service
	}
	o.ConnectWithin = time.Minute
	if o.AnswerWithin == 0 {
		o.AnswerWithin = time.Minute
	}
	if o.AliveEvery == 0 {
		o.AliveEvery = time.Minute
	}
	c, err := NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func noLeaks(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaks.None(t, before) })
}

// await returns the next entry, or the error with which the Reader has ended.
func await(t testing.TB, r *Reader) (Entry, error) {
	t.Helper()
	for {
		if e, ok, err := r.Next(); ok || err != nil {
			return e, err
		}
		select {
		case <-r.Ready():
		case <-t.Context().Done():
			t.Fatal("no entry and no error has come")
		}
	}
}

// queued returns how many entries have come that Next has not returned yet.
func queued(r *Reader) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(len(r.queue))
}

// The broker uses permits as Pulsar does: it sends as many entries as there are permits, at most 100 at once, and
// then takes a permit back for each of their messages. All entries come, however many messages they have and
// however fast they are taken. No more entries wait than the Reader has permitted.
func TestAllEntriesComeAndNoMoreThanPermittedWait(t *testing.T) {
	noLeaks(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 30 {
		ahead, perEntry, messages := int64(1+rnd.IntN(50)), 1+rnd.IntN(40), 0.0
		if rnd.IntN(2) == 0 {
			messages = float64(perEntry)
		}
		const entries = 300
		b := newBroker(t)
		permits, next := int64(0), uint64(0)
		b.flow = func(p *peer, a asked) {
			for permits += int64(a.numbers[2]); permits > 0 && next < entries; {
				for range min(permits, 100, entries-int64(next)) {
					p.entry(5, 3+next, stored(metadata().number(11, uint64(perEntry)), nil))
					next++
					permits -= int64(perEntry)
				}
			}
		}
		c := newTestClient(t, Config{Service: b.address()})
		r, err := c.Read(t.Context(), "persistent://a/b/c", 5, 3)
		if err != nil {
			t.Fatal(err)
		}
		most := ahead
		if messages > 0 {
			most += 100
		}
		for i := range int64(entries) {
			r.Permit(min(ahead, entries-i), messages)
			e, err := await(t, r)
			if err != nil || e.Ledger != 5 || e.Entry != 3+i {
				t.Fatalf("got entry %d:%d, %v; want 5:%d", e.Ledger, e.Entry, err, 3+i)
			}
			if n := queued(r) + 1; n > most {
				t.Fatalf("%d entries wait, but only %d were permitted (%d messages in each, by messages: %v)", n, ahead, perEntry, messages > 0)
			}
			e.Release()
		}
		r.Close(t.Context())
		c.Close()
		b.close()
	}
}

func TestAReaderBeginsWithItsEntryAndEndsWithItsTopic(t *testing.T) {
	noLeaks(t)
	b := newBroker(t)
	b.flow = func(p *peer, _ asked) {
		if p.start.numbers[1] != 5 || p.start.numbers[2] != 3 || p.start.numbers[4] != 0 {
			t.Errorf("the Reader begins at %v", p.start.numbers)
		}
		p.entry(5, 3, stored(metadata(), []byte("v")))
		p.send(base(cmdCloseConsumer, fields(nil).number(1, p.consumer).number(2, 9)))
	}
	c := newTestClient(t, Config{Service: b.address()})
	r, err := c.Read(t.Context(), "persistent://a/b/c", 5, 3)
	if err != nil {
		t.Fatal(err)
	}
	r.Permit(1, 0)
	if e, err := await(t, r); err != nil || e.Entry != 3 {
		t.Fatal(e, err)
	}
	if _, err := await(t, r); !errors.Is(err, ErrMoved) {
		t.Errorf("got the error %v, want %v", err, ErrMoved)
	}
	r.Close(t.Context())
}

func TestAConnectionThatEndsEndsItsReadersAndTheNextReaderGetsAnother(t *testing.T) {
	noLeaks(t)
	b := newBroker(t)
	b.flow = func(p *peer, _ asked) { _ = p.net.Close() }
	c := newTestClient(t, Config{Service: b.address()})
	for range 3 {
		r, err := c.Read(t.Context(), "persistent://a/b/c", 5, 3)
		if err != nil {
			t.Fatal(err)
		}
		r.Permit(1, 0)
		if _, err := await(t, r); err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), b.address()) {
			t.Error(err)
		}
		r.Close(t.Context())
	}
}

// silent is a connection that answers no ping once it is set.
type silent struct {
	net.Conn
	atomic.Bool
}

func (s *silent) Write(b []byte) (int, error) {
	if s.Load() {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

// The clock is that of synctest, so no machine is too slow for a ping.
func TestABrokerFromWhichNothingComesIsGivenUpAndOneThatAnswersPingsIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewClient(Config{Service: "pulsar://broker", AliveEvery: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := net.Pipe()
		broker := &silent{Conn: theirs}
		go (&peer{net: broker}).run()
		k := newConn(c, address{host: "broker"}, ours)
		r := newReader(k, 1)
		k.readers[1] = r
		k.start()
		defer c.work.Wait()
		defer k.fail(errClosed)
		after := func(d time.Duration) error {
			time.Sleep(d)
			synctest.Wait()
			return k.why()
		}
		if err := after(time.Hour + time.Second/2); err != nil {
			t.Fatalf("the broker answers all pings, but was given up: %v", err)
		}
		broker.Store(true)
		if err := after(2 * time.Second); err != nil {
			t.Fatalf("the broker has not answered two pings: %v", err)
		}
		if err := after(time.Second); err == nil {
			t.Fatal("the silent broker was not given up")
		}
		if _, err := await(t, r); err == nil || !strings.Contains(err.Error(), "nothing came") {
			t.Errorf("got the error %v, want one with %q", err, "nothing came")
		}
	})
}

// A wall clock that is set back by hours must not keep a silent broker, and one that is set forward must not end a
// live connection. So the client notes times since the process began, not since 1970.
func TestWhenABrokerWasHeardIsNotedByTheMonotonicClock(t *testing.T) {
	noLeaks(t)
	b := newBroker(t)
	before := time.Since(began)
	c := newTestClient(t, Config{Service: b.address()})
	r, err := c.Read(t.Context(), "persistent://a/b/c", 5, 3)
	if err != nil {
		t.Fatal(err)
	}
	if heard := time.Duration(r.conn.heard.Load()); heard < before || heard > time.Since(began) {
		t.Errorf("the broker was heard %v after the start; now it is %v after the start", heard, time.Since(began))
	}
	r.Close(t.Context())
}

func TestTheBrokerThatHasTheTopicIsFound(t *testing.T) {
	noLeaks(t)
	first, second := newBroker(t), newBroker(t)
	first.lookup = func(a asked) fields {
		return fields(nil).text(1, "pulsar://"+second.address()).number(3, 0).flag(5, true)
	}
	second.lookup = func(a asked) fields {
		if a.numbers[3] != 1 || string(a.texts[1]) != "persistent://a/b/c" {
			t.Errorf("the broker was asked %v %q", a.numbers, a.texts)
		}
		return fields(nil).text(1, "pulsar://"+second.address()).number(3, 1)
	}
	c := newTestClient(t, Config{Service: first.address()})
	r, err := c.Read(t.Context(), "persistent://a/b/c", 5, 3)
	if err != nil {
		t.Fatal(err)
	}
	r.Close(t.Context())
	if second.peers[0].consumer == 0 {
		t.Error("the Reader went to the first broker, want the one that it has named")
	}
	// The client tells a proxy which broker it wants.
	first.lookup = func(asked) fields { return fields(nil).text(1, "pulsar://inside:6650").number(3, 1).flag(8, true) }
	behind := ""
	first.login = func(p *peer, a asked) {
		if broker := string(a.texts[6]); broker != "" {
			behind = broker
		}
		p.send(base(cmdConnected, nil))
	}
	if r, err = c.Read(t.Context(), "persistent://a/b/c", 5, 3); err != nil {
		t.Fatal(err)
	}
	r.Close(t.Context())
	if behind != "inside:6650" {
		t.Errorf("the proxy was asked for %q", behind)
	}
	// Brokers that name each other for ever, and one that refuses.
	first.lookup = func(asked) fields { return fields(nil).text(1, "pulsar://"+first.address()).number(3, 0) }
	if _, err := c.Read(t.Context(), "persistent://a/b/c", 5, 3); err == nil || !strings.Contains(err.Error(), "20 times") {
		t.Errorf("got the error %v, want one with %q", err, "20 times")
	}
	first.lookup = func(asked) fields { return fields(nil).number(3, 2).number(6, 4).text(7, "not for you") }
	_, err = c.Read(t.Context(), "persistent://a/b/c", 5, 3)
	if no, ok := errors.AsType[*Refused](err); !ok || no.Code != AuthorizationError || no.Message != "not for you" {
		t.Error(err)
	}
}

// A broker takes connections and cannot say who has a topic: it refuses to, or does not answer. The next try asks
// the other broker that the service names.
func TestABrokerThatCannotTellWhoHasTheTopicIsNotAskedAgainAndAgain(t *testing.T) {
	noLeaks(t)
	for name, lookup := range map[string]func(asked) fields{
		"it refuses":       func(asked) fields { return fields(nil).number(3, 2).number(6, 6).text(7, "not ready") },
		"it gives no host": func(asked) fields { return fields(nil).number(3, 1) },
	} {
		ill, well := newBroker(t), newBroker(t)
		ill.lookup = lookup
		c := newTestClient(t, Config{Service: ill.address() + "," + well.address()})
		if _, err := c.Read(t.Context(), "persistent://a/b/c", 5, 3); err == nil {
			t.Errorf("%s: it has given a Reader", name)
		}
		r, err := c.Read(t.Context(), "persistent://a/b/c", 5, 3)
		if err != nil {
			t.Errorf("%s: the other broker is not asked: %v", name, err)
			continue
		}
		r.Close(t.Context())
	}
	silent, well := newBroker(t), newBroker(t)
	asks, unblock := make(chan struct{}, 2), make(chan struct{})
	silent.lookup = func(asked) fields { asks <- struct{}{}; <-unblock; return fields(nil).number(3, 2) }
	c := newTestClient(t, Config{Service: silent.address() + "," + well.address()})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-asks; cancel(errNoAnswer) }() // as when its time to answer has passed
	if _, err := c.Read(ctx, "persistent://a/b/c", 5, 3); !errors.Is(err, errNoAnswer) {
		t.Error(err)
	}
	close(unblock)
	if r, err := c.Read(t.Context(), "persistent://a/b/c", 5, 3); err != nil {
		t.Errorf("the other broker is not asked: %v", err)
	} else {
		r.Close(t.Context())
	}
}

// token is a login with another text each time.
type token struct{ n int }

func (*token) Name() string                                 { return "token" }
func (k *token) GetData() ([]byte, error)                   { k.n++; return fmt.Append(nil, "token ", k.n), nil }
func (*token) GetTLSCertificate() (*tls.Certificate, error) { return nil, nil }

func TestALoginIsRenewedWhenTheBrokerAsks(t *testing.T) {
	noLeaks(t)
	b := newBroker(t)
	seen := make(chan string, 10)
	b.login = func(p *peer, a asked) {
		if a.kind == cmdConnect {
			seen <- string(a.texts[5]) + ": " + string(a.texts[3])
			p.send(base(cmdConnected, nil))
			return
		}
		response := parse(a.texts[2])
		seen <- string(response.texts[1]) + ": " + string(response.texts[2])
	}
	b.flow = func(p *peer, _ asked) { p.send(base(cmdAuthChallenge, nil)) }
	c := newTestClient(t, Config{Service: b.address(), Auth: &token{}})
	r, err := c.Read(t.Context(), "persistent://a/b/c", 5, 3)
	if err != nil {
		t.Fatal(err)
	}
	r.Permit(1, 0)
	for _, want := range []string{"token: token 1", "token: token 2"} {
		if got := <-seen; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	r.Close(t.Context())
}

// never is a login whose text does not come before the test ends.
type never struct{ asked, end chan struct{} }

func (*never) Name() string                                 { return "token" }
func (*never) GetTLSCertificate() (*tls.Certificate, error) { return nil, nil }
func (n *never) GetData() ([]byte, error) {
	n.asked <- struct{}{}
	<-n.end
	return nil, errors.New("the test has ended")
}

// The text of a login never comes, at the first login or when the broker asks for it again. The login ends after
// its time, and Close does not wait for it. The text is asked for once, however many connections need it.
func TestALoginThatNeverComesHoldsNothingUp(t *testing.T) {
	noLeaks(t)
	b := newBroker(t)
	auth := &never{make(chan struct{}, 100), make(chan struct{})}
	defer close(auth.end)
	c := newTestClient(t, Config{Service: b.address(), Auth: auth, AnswerWithin: 10 * time.Millisecond})
	connect := func() {
		if _, err := c.connect(t.Context(), address{host: b.address()}); !errors.Is(err, errNoSecret) {
			t.Errorf("got the error %v, want %v", err, errNoSecret)
		}
	}
	for asked := false; !asked; { // try again: on a slow machine the time may be over before the text is asked for
		connect()
		select {
		case <-auth.asked:
			asked = true
		default:
		}
	}
	for range 3 {
		connect()
	}
	if n := len(auth.asked); n != 0 {
		t.Errorf("the text was asked for %d times more", n)
	}
	c.Close()

	auth = &never{make(chan struct{}, 100), auth.end}
	c = newTestClient(t, Config{Service: b.address(), Auth: auth, AnswerWithin: time.Hour})
	ended := make(chan error, 1)
	go func() { _, err := c.connect(t.Context(), address{host: b.address()}); ended <- err }()
	<-auth.asked
	c.Close()
	if err := <-ended; !errors.Is(err, errClosed) {
		t.Errorf("got the error %v, want %v", err, errClosed)
	}

	auth = &never{make(chan struct{}, 100), auth.end}
	c = newTestClient(t, Config{Service: b.address(), AnswerWithin: time.Hour})
	conn, err := c.connect(t.Context(), address{host: b.address()})
	if err != nil {
		t.Fatal(err)
	}
	c.o.Auth = auth // from now on, so it is asked for when the broker wants the login again
	b.mu.Lock()
	peer := b.peers[len(b.peers)-1]
	b.mu.Unlock()
	peer.send(base(cmdAuthChallenge, nil))
	<-auth.asked
	c.Close()
	<-conn.ended
}

func TestARefusedLoginAndACancelledCallEndAtOnce(t *testing.T) {
	noLeaks(t)
	b := newBroker(t)
	b.login = func(p *peer, _ asked) {
		p.send(base(cmdError, fields(nil).number(1, 1<<64-1).number(2, uint64(AuthenticationError)).text(3, "who are you")))
	}
	c := newTestClient(t, Config{Service: b.address()})
	_, err := c.Read(t.Context(), "persistent://a/b/c", 5, 3)
	if no, ok := errors.AsType[*Refused](err); !ok || no.Code != AuthenticationError {
		t.Error(err)
	}
	began := make(chan struct{})
	b.login = func(*peer, asked) { close(began) } // never answers
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	if _, err := c.Read(ctx, "persistent://a/b/c", 5, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("got the error %v, want %v", err, context.Canceled)
	}
}
