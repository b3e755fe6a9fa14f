package remoting

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// answerWithin is how long a request may wait for its answer.
const answerWithin = 10 * time.Second

// Options of a Client. NameServers is required.
type Options struct {
	NameServers []string // host:port
	TLS         *tls.Config
	Credentials Credentials
	// Answer is how long a request may wait for its answer; 0: 10 s.
	Answer time.Duration
}

// Client keeps one connection for each address. It is safe for concurrent use.
type Client struct {
	o    Options
	good atomic.Int32 // the name server that answered last

	dial  func(ctx context.Context, addr string) (net.Conn, error)
	ctx   context.Context // ends with Close
	end   context.CancelFunc
	dials sync.WaitGroup // connections that are being made

	mu     sync.Mutex // guards what follows
	closed bool
	peers  map[string]*peer
}

// peer is one address. Client.mu guards it.
type peer struct {
	dialing *dialing // nil: nobody connects now
	conn    *conn
	count   int64 // connections that were made
}

// dialing is a connection that is being made, for all who wait for it.
type dialing struct {
	done chan struct{} // closed when conn or err is set
	conn *conn
	err  error
}

// NewClient connects to nothing yet.
func NewClient(o Options) *Client {
	if o.Answer == 0 {
		o.Answer = answerWithin
	}
	c := &Client{o: o, peers: map[string]*peer{}}
	c.dial = c.dialNet
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

// Close ends all connections. Requests that are under way fail.
func (c *Client) Close() {
	c.end()
	c.mu.Lock()
	c.closed = true
	var all []*conn
	for _, p := range c.peers {
		if p.conn != nil {
			all = append(all, p.conn)
		}
	}
	c.mu.Unlock()
	for _, one := range all {
		one.close()
	}
	c.dials.Wait()
}

// Start sends a request to addr and does not wait for the answer.
func (c *Client) Start(ctx context.Context, addr string, cmd *Command) (*Pending, error) {
	all, err := c.StartAll(ctx, addr, []Request{{Command: cmd}})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Request is one of several that are sent together. The body of its answer goes to Memory if
// it fits there.
type Request struct {
	Command *Command
	Memory  []byte
}

// StartAll sends requests to addr in one write and does not wait for their answers. After an
// error none of them is under way.
func (c *Client) StartAll(ctx context.Context, addr string, requests []Request) ([]*Pending, error) {
	one, err := c.connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	for _, r := range requests {
		c.o.Credentials.sign(r.Command)
	}
	return one.start(ctx, requests)
}

// Call sends a request to addr and returns the answer. An answer with another code
// than 0 is an *Error.
func (c *Client) Call(ctx context.Context, addr string, cmd *Command) (Command, error) {
	p, err := c.Start(ctx, addr, cmd)
	if err != nil {
		return Command{}, err
	}
	a, err := p.Wait(ctx, c.o.Answer)
	if err == nil && a.Code != OK {
		err = &Error{addr, a.Code, a.Remark}
	}
	return a, err
}

// Answer is how long a request may wait for its answer.
func (c *Client) Answer() time.Duration { return c.o.Answer }

// ask sends a request to the name servers, one after the other, until one answers.
func (c *Client) ask(ctx context.Context, make func() *Command) (Command, error) {
	var last error
	n := len(c.o.NameServers)
	first := int(c.good.Load())
	for i := range n {
		at := (first + i) % n
		a, err := c.Call(ctx, c.o.NameServers[at], make())
		if err == nil || CodeOf(err) >= 0 {
			c.good.Store(int32(at))
			return a, err
		}
		if ctx.Err() != nil {
			return a, ctx.Err()
		}
		last = err
	}
	return Command{}, last
}

// connect returns the connection to addr. If there is none, one is made for all who ask: they
// share its failure too. Otherwise 500 queues would wait for 500 failures, one after the
// other. A context ends its own caller's wait only.
func (c *Client) connect(ctx context.Context, addr string) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d, one, err := c.connection(addr)
	if err != nil || one != nil {
		return one, err
	}
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// connection returns the connection to addr, or the one that is being made.
func (c *Client) connection(addr string) (*dialing, *conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, errClosed
	}
	p := c.peers[addr]
	if p == nil {
		p = &peer{}
		c.peers[addr] = p
	}
	if p.conn != nil && p.conn.why() == nil {
		return nil, p.conn, nil
	}
	if p.conn = nil; p.dialing == nil {
		d := &dialing{done: make(chan struct{})}
		p.dialing = d
		c.dials.Go(func() { c.make(addr, p, d) })
	}
	return p.dialing, nil, nil
}

// make makes a connection.
func (c *Client) make(addr string, p *peer, d *dialing) {
	defer close(d.done)
	nc, err := c.dial(c.ctx, addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	p.dialing = nil
	switch {
	case c.closed:
		if err == nil {
			_ = nc.Close()
		}
		d.err = errClosed
	case err != nil:
		d.err = unreachable(addr, err)
	default:
		d.conn = newConn(addr, nc)
		p.conn = d.conn
		p.count++
	}
}

// Connections is how often a connection to addr was made. If it has changed, the server may
// have been started again.
func (c *Client) Connections(addr string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[addr]; p != nil {
		return p.count
	}
	return 0
}

func (c *Client) dialNet(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, min(dialWithin, c.o.Answer))
	defer cancel()
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil || c.o.TLS == nil {
		return nc, err
	}
	config := c.o.TLS.Clone()
	if config.ServerName == "" {
		if config.ServerName, _, err = net.SplitHostPort(addr); err != nil {
			_ = nc.Close()
			return nil, err
		}
	}
	secure := tls.Client(nc, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return secure, nil
}

// NameServers are the addresses that routes come from.
func (c *Client) NameServers() []string { return slices.Clone(c.o.NameServers) }
