package remoting

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/headrace/headrace/internal/proof/leaks"
)

// server answers each request with what handle returns; nil sends no answer.
func server(t *testing.T, handle func(Command) *Command) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		r := bufio.NewReader(nc)
		for {
			c, n, err := readHeader(r)
			if err != nil {
				return
			}
			if c.Body, err = readBody(r, n, nil); err != nil {
				return
			}
			if a := handle(c); a != nil {
				frame, _ := a.append(nil)
				_, _ = nc.Write(frame)
			}
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func answer(c Command, ext map[string]string) *Command {
	return &Command{Opaque: c.Opaque, Flag: flagAnswer, Ext: ext, Body: c.Body}
}

func TestAnswersGoToTheirRequestsInWhicheverOrderTheyCome(t *testing.T) {
	defer leaks.None(t, goleak.IgnoreCurrent())
	var held []Command
	addr := server(t, func(c Command) *Command {
		if held = append(held, c); len(held)%2 == 1 {
			return nil
		}
		last := held[len(held)-2] // the first of two requests is answered when the second comes; the second never is
		return answer(last, map[string]string{"code": string(rune('0' + last.Code))})
	})
	c := NewClient(Options{NameServers: []string{addr}})
	defer c.Close()
	all, err := c.StartAll(t.Context(), addr, []Request{{&Command{Code: 1, Body: []byte("body")}, make([]byte, 0, 100)}})
	if err != nil {
		t.Fatal(err)
	}
	first := all[0]
	second, err := c.Start(t.Context(), addr, &Command{Code: 2})
	if err != nil {
		t.Fatal(err)
	}
	a, err := first.Wait(t.Context(), time.Minute)
	if err != nil || a.Ext["code"] != "1" || string(a.Body) != "body" || cap(a.Body) != 100 {
		t.Errorf("%+v (%v)", a, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := second.Wait(ctx, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled wait returns %v", err)
	}
}

func TestAServerThatDoesNotAnswerIsUnreachableAndTheNextRequestConnectsAgain(t *testing.T) {
	defer leaks.None(t, goleak.IgnoreCurrent())
	addr := server(t, func(Command) *Command { return nil })
	c := NewClient(Options{NameServers: []string{addr}, Answer: 50 * time.Millisecond})
	defer c.Close()
	_, err := c.Call(t.Context(), addr, &Command{Code: 1})
	if !errors.Is(err, ErrUnreachable) || errors.Is(err, io.EOF) {
		t.Errorf("it says %v", err)
	}
	if _, one, _ := c.connection(addr); one != nil {
		t.Error("the connection without an answer was used again")
	}
}

// A wall clock that is set by hours must neither end a connection that answers nor keep one that does not. So the
// client notes times since the process began, not since 1970.
func TestWhenAServerAnsweredIsNotedByTheMonotonicClock(t *testing.T) {
	defer leaks.None(t, goleak.IgnoreCurrent())
	addr := server(t, func(c Command) *Command { return answer(c, nil) })
	c := NewClient(Options{NameServers: []string{addr}})
	defer c.Close()
	before := time.Since(began)
	if _, err := c.Call(t.Context(), addr, &Command{Code: 1}); err != nil {
		t.Fatal(err)
	}
	_, one, err := c.connection(addr)
	if err != nil {
		t.Fatal(err)
	}
	if heard := time.Duration(one.heard.Load()); heard < before || heard > time.Since(began) {
		t.Errorf("the server answered %v after the start; now it is %v after the start", heard, time.Since(began))
	}
}

// If a server's handshake hangs, all callers share one wait. They do not wait one after the other.
func TestCallersShareTheFailureOfOneDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClient(Options{NameServers: []string{"broker:1"}})
		dials, hangs := 0, make(chan error)
		c.dial = func(context.Context, string) (net.Conn, error) {
			dials++
			return nil, <-hangs
		}
		const callers = 20
		failed := make(chan error, callers+1)
		call := func(ctx context.Context) {
			go func() {
				_, err := c.Call(ctx, "broker:1", &Command{Code: 1})
				failed <- err
			}()
		}
		ctx, cancel := context.WithCancel(t.Context())
		call(ctx)
		synctest.Wait()
		for range callers {
			call(t.Context())
		}
		synctest.Wait() // until all of them wait
		cancel()        // the caller that has begun the dial gives up
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that has gone: %v", err)
		}
		hangs <- errors.New("no handshake within 5s")
		for range callers {
			if err := <-failed; !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "broker:1") || !strings.Contains(err.Error(), "no handshake") {
				t.Errorf("it says %v", err)
			}
		}
		if dials != 1 {
			t.Errorf("%d dials, want 1", dials)
		}
		call(t.Context())
		synctest.Wait()
		if dials != 2 {
			t.Errorf("the next caller did not dial again: %d dials", dials)
		}
		go func() { hangs <- errors.New("again") }()
		c.Close()
		if err := <-failed; err == nil {
			t.Error("no error after Close")
		}
	})
}

func TestACloseEndsRequestsThatAreUnderWay(t *testing.T) {
	defer leaks.None(t, goleak.IgnoreCurrent())
	addr := server(t, func(Command) *Command { return nil })
	c := NewClient(Options{NameServers: []string{addr}})
	p, err := c.Start(t.Context(), addr, &Command{Code: 1})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := p.Wait(t.Context(), time.Minute); !errors.Is(err, errClosed) {
		t.Errorf("it says %v", err)
	}
	if _, err := c.Call(t.Context(), addr, &Command{Code: 1}); !errors.Is(err, errClosed) {
		t.Errorf("a closed client says %v", err)
	}
}

func TestARequestIsSignedOverItsFieldsInOrderAndItsBody(t *testing.T) {
	c := &Command{Ext: map[string]string{"topic": "clicks", "a": "1"}, Body: []byte("body")}
	k := Credentials{AccessKey: "key", SecretKey: "secret"}
	k.sign(c)
	// The HMAC-SHA1 of "key" + "1" + "clicks" + "body", because "A" sorts before "a".
	const want = "pAzbhx9KMvMTbUaljcYm+ruZMmo="
	first := c.Ext["Signature"]
	k.sign(c)
	if c.Ext["Signature"] != first || c.Ext["AccessKey"] != "key" {
		t.Errorf("signed again: %v", c.Ext)
	}
	if first != want {
		t.Errorf("the signature is %s, want %s", first, want)
	}
}

func TestKeysThatAreNumbersAreQuoted(t *testing.T) {
	const said = `{"brokerAddrTable":{"b0":{"brokerAddrs":{0:"127.0.0.1:1",12:"x{3:\"y"},"brokerName":"b0"}}}`
	var v map[string]any
	if err := json.Unmarshal(quoteKeys([]byte(said)), &v); err != nil {
		t.Fatalf("%v in %s", err, quoteKeys([]byte(said)))
	}
	const good = `{"a":[1,2],"0":{"b":"{0:"}}`
	if got := string(quoteKeys([]byte(good))); got != good {
		t.Errorf("JSON becomes %s", got)
	}
}

// FuzzFrames reads any bytes of a server as a command or an error.
func FuzzFrames(f *testing.F) {
	frame, _ := (&Command{Code: 11, Opaque: 3, Ext: map[string]string{"a": "b"}, Body: []byte("xyz")}).append(nil)
	f.Add(frame)
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		c, n, err := readHeader(r)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("a body of %d bytes", n)
		}
		c.Body, _ = readBody(r, n, nil)
		if _, err := PulledOf(c); err == nil {
			_, _ = OffsetOf(c)
		}
	})
}
