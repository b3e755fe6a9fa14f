package pulsarwire

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
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
