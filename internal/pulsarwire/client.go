package pulsarwire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Auth is a login. The official client's auth.Provider is one.
type Auth interface {
	Name() string
	GetData() ([]byte, error)
	GetTLSCertificate() (*tls.Certificate, error)
}

// Config opens a Client. Service, ConnectWithin, AnswerWithin and AliveEvery are required.
type Config struct {
	Service string      // pulsar://host:port[,host:port], or pulsar+ssl://
	TLS     *tls.Config // of pulsar+ssl; nil: Go's defaults
	Auth    Auth        // nil: none
	Version string      // of this program, for the broker's log and its stats

	ConnectWithin time.Duration
	AnswerWithin  time.Duration
	AliveEvery    time.Duration // a broker from which nothing comes for twice this time is away
}

// Client has the connections to the brokers of one cluster.
type Client struct {
	o     Config
	ssl   bool
	hosts []string

	turn atomic.Uint32 // the next of hosts
	ids  atomic.Uint64 // of Readers and requests

	asking chan struct{} // taken while Auth is asked

	ctx  context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // connections, and those that are being made

	mu    sync.Mutex
	conns map[address]*dialed
}

// address is where a broker is. If we reach it through a proxy, host is the proxy's.
type address struct{ host, broker string }

// dialed is a connection that is being made, or was.
type dialed struct {
	done chan struct{}
	conn *conn
	err  error
}

// NewClient makes a client. It does not connect yet.
func NewClient(o Config) (*Client, error) {
	scheme, hosts, ok := strings.Cut(o.Service, "://")
	if !ok || scheme != "pulsar" && scheme != "pulsar+ssl" {
		return nil, fmt.Errorf("%q is no address of Pulsar: it must begin with pulsar:// or pulsar+ssl://", o.Service)
	}
	c := &Client{o: o, ssl: scheme == "pulsar+ssl", conns: map[address]*dialed{}, asking: make(chan struct{}, 1)}
	hosts, _, _ = strings.Cut(hosts, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		c.hosts = append(c.hosts, c.withPort(strings.TrimSpace(host)))
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c, nil
}

func (c *Client) withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	port := "6650"
	if c.ssl {
		port = "6651"
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// Close ends all connections, and the Readers with them.
func (c *Client) Close() {
	c.end()
	c.mu.Lock()
	all := c.conns
	c.conns = nil
	c.mu.Unlock()
	for _, d := range all {
		<-d.done
		if d.conn != nil {
			d.conn.fail(errClosed)
		}
	}
	c.work.Wait()
}

// Read opens a Reader of a topic that begins with an entry.
func (c *Client) Read(ctx context.Context, topic string, ledger, entry int64) (*Reader, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.ConnectWithin+c.o.AnswerWithin, errNoAnswer)
	defer cancel()
	conn, err := c.find(ctx, topic)
	if err != nil {
		return nil, err
	}
	return conn.subscribe(ctx, topic, ledger, entry)
}

var errNoAnswer = errors.New("no answer in time")

const redirectsMost = 20

// find returns a connection to the broker that has a topic.
func (c *Client) find(ctx context.Context, topic string) (*conn, error) {
	host := c.hosts[int(c.turn.Load())%len(c.hosts)]
	to, authoritative := address{host: host}, false
	for range redirectsMost {
		a, next, err := c.lookup(ctx, to, host, topic, authoritative)
		if err != nil {
			if to.host == host && (ctx.Err() == nil || errors.Is(context.Cause(ctx), errNoAnswer)) {
				c.turn.Add(1) // the next try asks another of the hosts
			}
			return nil, err
		}
		if a.response == 1 {
			return c.connect(ctx, next)
		}
		to, authoritative = next, a.authoritative
	}
	return nil, fmt.Errorf("%d times, a broker answered that another one has the topic, and none has it", redirectsMost)
}

// lookup asks the broker at a place which one has a topic. next is the place that it names.
func (c *Client) lookup(ctx context.Context, to address, host, topic string, authoritative bool) (a command, next address, err error) {
	conn, err := c.connect(ctx, to)
	if err != nil {
		return a, next, err
	}
	request := c.ids.Add(1)
	a, err = conn.ask(ctx, request, lookupCommand(topic, request, authoritative))
	if err == nil && a.response == 2 {
		err = &Refused{a.code, a.message}
	}
	if err != nil {
		return a, next, fmt.Errorf("asking %s which broker has the topic: %w", to.host, err)
	}
	next, err = c.address(&a, host)
	return a, next, err
}

// address is the place that the answer to a lookup names.
func (c *Client) address(a *command, host string) (address, error) {
	text := a.url
	if c.ssl {
		text = a.urlTLS
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return address{}, fmt.Errorf("the broker names %q as the broker of the topic: with TLS brokers need brokerServicePortTls, without it brokerServicePort", text)
	}
	broker := c.withPort(u.Host)
	switch {
	case !a.proxied && broker == host:
		return address{host: host}, nil
	case a.proxied:
		return address{host, broker}, nil
	}
	return address{host: broker}, nil
}

// connect returns the connection to a place, which is made if there is none.
func (c *Client) connect(ctx context.Context, to address) (*conn, error) {
	c.mu.Lock()
	if c.conns == nil {
		c.mu.Unlock()
		return nil, errClosed
	}
	d := c.conns[to]
	if d != nil && d.ended() {
		d = nil
	}
	if d == nil {
		d = &dialed{done: make(chan struct{})}
		c.conns[to] = d
		c.work.Go(func() {
			d.conn, d.err = c.dial(to)
			close(d.done)
		})
	}
	c.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connecting to %s: %w", to.host, context.Cause(ctx))
	}
}

// ended says that the connection could not be made, or is broken.
func (d *dialed) ended() bool {
	select {
	case <-d.done:
		return d.err != nil || d.conn.why() != nil
	default:
		return false
	}
}

// dial makes a connection and logs in.
func (c *Client) dial(to address) (*conn, error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.o.ConnectWithin, errNoAnswer)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", to.host)
	if err != nil {
		return nil, err
	}
	if c.ssl {
		secure, err := c.secure(ctx, nc, to.host)
		if err != nil {
			_ = nc.Close()
			return nil, err
		}
		nc = secure
	}
	conn := newConn(c, to, nc)
	if err := conn.login(); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("logging in at %s: %w", to.host, notEOF(err))
	}
	conn.start()
	return conn, nil
}

func (c *Client) secure(ctx context.Context, nc net.Conn, host string) (net.Conn, error) {
	o := c.o.TLS.Clone()
	if o == nil {
		o = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if o.ServerName == "" {
		o.ServerName, _, _ = net.SplitHostPort(host)
	}
	if c.o.Auth != nil {
		pair, err := c.o.Auth.GetTLSCertificate()
		if err != nil {
			return nil, err
		}
		if pair != nil {
			o.Certificates = []tls.Certificate{*pair}
		}
	}
	secure := tls.Client(nc, o)
	return secure, secure.HandshakeContext(ctx)
}
