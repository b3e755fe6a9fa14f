package link

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/credentials"

	"github.com/headrace/headrace/internal/access"
)

// Limits of a Door. A connection that has proven nothing is cheap and short-lived: a new
// one takes the place of the oldest. A caller that has proven a role may have many.
const (
	maxStrangers = 128
	maxPerCaller = 4096
	knockWithin  = 5 * time.Second
)

// Door is a listener that lets in connections whose callers are known. Accept returns them
// as they have proven who they are, each a *Guest.
type Door struct {
	l         net.Listener
	tls       *tls.Config // nil: a proof is required; else a certificate is, and a proof may come with it
	book      *access.Book
	log       *slog.Logger
	strangers int // connections that have proven nothing yet
	perCaller int // connections of one token or one certificate's name

	in    chan *Guest
	pages atomic.Pointer[doorPages] // nil: callers that speak HTTP/1.1 are refused
	room  *semaphore.Weighted       // for large messages, of all callers together
	done  chan struct{}
	end   sync.Once
	wg    sync.WaitGroup

	mu      sync.Mutex
	waiting []net.Conn // strangers, the oldest first
	inside  map[string]int
}

// Guest is a connection whose caller is known.
type Guest struct {
	net.Conn
	Caller access.Caller
	first  []byte     // read already
	page   *doorPages // it speaks HTTP/1.1
	scale  *scale     // of a caller that speaks gRPC
	log    *slog.Logger
	leave  func()
}

// Read gives what the door has read first. It waits while large messages of others are read.
func (g *Guest) Read(b []byte) (n int, err error) {
	if len(g.first) > 0 {
		n = copy(b, g.first)
		g.first = g.first[n:]
	} else if n, err = g.Conn.Read(b); err != nil {
		return n, err
	}
	if g.scale == nil {
		return n, nil
	}
	if err := g.scale.received(b[:n]); err != nil {
		g.log.Warn("a connection is closed", "caller", g.Caller.Name, "from", g.RemoteAddr().String(), "error", err)
		return 0, err
	}
	return n, nil
}

// Write sends to the caller.
func (g *Guest) Write(b []byte) (int, error) {
	if g.scale != nil {
		g.scale.answered(b)
	}
	return g.Conn.Write(b)
}

// Close ends the connection and makes room for another.
func (g *Guest) Close() error {
	g.leave()
	if g.scale != nil {
		g.scale.end()
	}
	return g.Conn.Close()
}

// NewDoor opens the door; Close ends it.
func NewDoor(l net.Listener, t TLS, book *access.Book, log *slog.Logger) (*Door, error) {
	d, err := newDoor(l, t, book, log)
	if err == nil {
		d.open()
	}
	return d, err
}

// open begins to let callers in. Fields of the door do not change from then on.
func (d *Door) open() { d.wg.Go(d.listen) }

func newDoor(l net.Listener, t TLS, book *access.Book, log *slog.Logger) (*Door, error) {
	d := &Door{l: l, book: book, log: log, strangers: maxStrangers, perCaller: maxPerCaller,
		room: semaphore.NewWeighted(largeRoom),
		in:   make(chan *Guest), done: make(chan struct{}), inside: map[string]int{}}
	if t.Enabled() {
		cfg, err := t.ServerConfig(tls.RequireAndVerifyClientCert, "h2")
		if err != nil {
			return nil, err
		}
		d.tls = cfg
	}
	return d, nil
}

// listen runs until the listener is closed.
func (d *Door) listen() {
	for {
		c, err := d.l.Accept()
		switch {
		case err == nil:
			d.knocks(c)
			d.wg.Go(func() { d.ask(c) })
		case errors.Is(err, net.ErrClosed):
			return
		default: // out of file descriptors, most likely
			d.log.Error("a connection could not be accepted", "error", err)
			select {
			case <-d.done:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

// knocks remembers a stranger, and turns away the oldest if there are too many.
func (d *Door) knocks(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) >= d.strangers {
		_ = d.waiting[0].Close()
		d.waiting = d.waiting[1:]
	}
	d.waiting = append(d.waiting, c)
}

// leaves forgets a stranger.
func (d *Door) leaves(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, w := range d.waiting {
		if w == c {
			d.waiting = append(d.waiting[:i:i], d.waiting[i+1:]...)
			return
		}
	}
}

// ask finds out who has come, and lets the caller in or closes the connection.
func (d *Door) ask(c net.Conn) {
	g, err := d.meet(c)
	d.leaves(c)
	if err == nil && !d.enter(g) {
		err = errors.New("it has too many connections")
	}
	if err != nil {
		_ = c.Close()
		d.log.Debug("a connection was refused", "from", c.RemoteAddr().String(), "error", err)
		return
	}
	to, closed := d.in, d.done
	if g.page != nil {
		to, closed = g.page.in, g.page.done
	}
	select {
	case to <- g:
	case <-closed:
		_ = g.Close()
	case <-d.done:
		_ = g.Close()
	}
}

// meet asks for a certificate, where TLS is on, and for a proof.
func (d *Door) meet(c net.Conn) (*Guest, error) {
	if err := c.SetDeadline(time.Now().Add(knockWithin)); err != nil {
		return nil, err
	}
	var caller access.Caller
	var session *tls.ConnectionState
	if d.tls != nil {
		t := tls.Server(c, d.tls)
		ctx, cancel := context.WithTimeout(context.Background(), knockWithin)
		defer cancel()
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		state := t.ConnectionState()
		caller, session, c = d.book.ByCertificate(state.PeerCertificates[0]), &state, t
	}
	first := make([]byte, len(proofMagic))
	if _, err := io.ReadFull(c, first); err != nil {
		return nil, err
	}
	switch {
	case string(first) == proofMagic:
		proven, err := checkProof(c, session, d.book, wantedOf(d.book))
		if err != nil {
			return nil, err
		}
		if caller.Name != "" {
			proven.Name = caller.Name + " with " + proven.Name
		}
		proven.Roles |= caller.Roles
		caller, first = proven, nil
	case d.tls == nil:
		return nil, errors.New("it gives no proof that it knows the token")
	}
	if first == nil {
		first = make([]byte, len(callsBegin))
		if _, err := io.ReadFull(c, first); err != nil {
			return nil, err
		}
	}
	var page *doorPages
	if !strings.HasPrefix(string(first), callsBegin) {
		if page = d.pages.Load(); page == nil {
			return nil, errors.New("it does not speak gRPC")
		}
	}
	g := &Guest{Conn: c, Caller: caller, first: first, page: page, log: d.log, leave: func() {}}
	if page == nil {
		g.scale = newScale(d.room, caller.Roles, func() { _ = c.Close() })
	}
	return g, c.SetDeadline(time.Time{})
}

// enter counts a caller's connections.
func (d *Door) enter(g *Guest) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := g.Caller.Name
	if d.inside[name] >= d.perCaller {
		return false
	}
	d.inside[name]++
	g.leave = sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.inside[name]--; d.inside[name] == 0 {
			delete(d.inside, name)
		}
	})
	return true
}

// Accept returns the next caller that has proven itself and speaks gRPC.
func (d *Door) Accept() (net.Conn, error) {
	select {
	case g := <-d.in:
		return g, nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

// Addr is the listener's.
func (d *Door) Addr() net.Addr { return d.l.Addr() }

// Close stops listening, ends the strangers' connections and waits for all that runs here.
func (d *Door) Close() error {
	var err error
	d.end.Do(func() {
		close(d.done)
		err = d.l.Close()
		d.mu.Lock()
		for _, c := range d.waiting {
			_ = c.Close()
		}
		d.mu.Unlock()
		d.wg.Wait()
	})
	return err
}

// Credentials let gRPC know what the door has found out.
func (d *Door) Credentials() credentials.TransportCredentials { return fromDoor{} }

type fromDoor struct{}

func (fromDoor) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	g, ok := c.(*Guest)
	if !ok {
		return nil, nil, errors.New("this connection came past the door")
	}
	return g, g.Caller, nil
}

func (fromDoor) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("a door does not dial")
}
func (fromDoor) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "headrace"}
}
func (fromDoor) Clone() credentials.TransportCredentials { return fromDoor{} }
func (fromDoor) OverrideServerName(string) error         { return nil }
