package pulsarwire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"testing"
	"time"
)

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
