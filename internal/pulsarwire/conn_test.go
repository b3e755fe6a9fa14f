package pulsarwire

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

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
