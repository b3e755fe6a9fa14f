package pulsarwire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const writeWithin = 10 * time.Second

// began is what a connection's times count from. With the wall clock, a silent broker would go
// unnoticed for hours if somebody set that clock back.
var began = time.Now()

// conn is one connection. One goroutine reads it, one sends pings.
type conn struct {
	c     *Client
	to    address
	net   net.Conn
	in    *bufio.Reader
	most  int64         // bytes of a message
	heard atomic.Int64  // when something came, ns since began
	bytes atomic.Int64  // that have come
	ended chan struct{} // closed by fail

	writing sync.Mutex
	out     []byte

	mu      sync.Mutex // guards what follows
	err     error      // why it ended
	waiting map[uint64]chan<- command
	readers map[uint64]*Reader
}

func newConn(c *Client, to address, nc net.Conn) *conn {
	k := &conn{c: c, to: to, net: nc, most: maxMessageSize, ended: make(chan struct{}),
		waiting: map[uint64]chan<- command{}, readers: map[uint64]*Reader{}}
	k.in = bufio.NewReaderSize(hearing{k}, readBuffer)
	return k
}

// hearing notes when something came: a large entry may need longer than two pings.
type hearing struct{ k *conn }

func (h hearing) Read(b []byte) (int, error) {
	n, err := h.k.net.Read(b)
	if n > 0 {
		h.k.heard.Store(int64(time.Since(began)))
		h.k.bytes.Add(int64(n))
	}
	return n, err
}

// login is the first exchange on a connection.
func (k *conn) login() error {
	stop := context.AfterFunc(k.c.ctx, func() { _ = k.net.Close() })
	defer stop()
	name, data, err := k.secret()
	if err != nil {
		return err
	}
	_ = k.net.SetDeadline(time.Now().Add(k.c.o.AnswerWithin))
	if err := k.write(connectCommand(k.c.o.Version, name, data, k.to.broker)); err != nil {
		return err
	}
	var scratch []byte
	for {
		a, _, err := readFrame(k.in, k.most, &scratch)
		if err != nil {
			return err
		}
		switch a.kind {
		case cmdConnected:
			if a.maxMessage > 0 {
				k.most = min(a.maxMessage, maxFrame)
			}
			return k.net.SetDeadline(time.Time{})
		case cmdError:
			return &Refused{a.code, a.message}
		case cmdAuthChallenge:
			if err := k.renew(); err != nil {
				return err
			}
		default:
			return damaged("the broker answered our login with a command of type %d", a.kind)
		}
	}
}

// secret gets what the login needs. An issuer may never answer, and Auth has no context: so it
// is asked in the background, once at a time, and Close does not wait for it.
func (k *conn) secret() (name string, data []byte, err error) {
	if k.c.o.Auth == nil {
		return "", nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(k.c.ctx, k.c.o.AnswerWithin, errNoSecret)
	defer cancel()
	ended := func() error {
		if k.c.ctx.Err() != nil {
			return errClosed
		}
		return context.Cause(ctx)
	}
	select {
	case k.c.asking <- struct{}{}:
	case <-ctx.Done():
		return "", nil, ended()
	}
	type answer struct {
		data []byte
		err  error
	}
	came := make(chan answer, 1)
	go func() {
		data, err := k.c.o.Auth.GetData()
		<-k.c.asking
		came <- answer{data, err}
	}()
	select {
	case a := <-came:
		return k.c.o.Auth.Name(), a.data, a.err
	case <-ctx.Done():
		return "", nil, ended()
	}
}

var errNoSecret = errors.New("the token or password for it did not come in time: check the login")

// renew logs in again on the connection.
func (k *conn) renew() error {
	name, data, err := k.secret()
	if err != nil {
		return err
	}
	return k.write(authResponseCommand(k.c.o.Version, name, data))
}

// start begins to read.
func (k *conn) start() {
	k.heard.Store(int64(time.Since(began)))
	k.c.work.Go(k.read)
	k.c.work.Go(k.keepAlive)
}

// fail ends the connection, and all requests and Readers on it.
func (k *conn) fail(err error) {
	k.mu.Lock()
	first := k.err == nil
	if first {
		k.err = fmt.Errorf("the connection to %s has ended: %w", k.to.host, notEOF(err))
		close(k.ended)
	}
	all := k.readers
	k.readers, k.waiting = map[uint64]*Reader{}, map[uint64]chan<- command{}
	k.mu.Unlock()
	_ = k.net.Close()
	for _, r := range all {
		r.fail(k.why())
	}
}

// why is the reason that fail was given, or nil.
func (k *conn) why() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// write sends a command.
func (k *conn) write(command fields) error {
	k.writing.Lock()
	defer k.writing.Unlock()
	k.out = appendFrame(k.out[:0], command)
	_ = k.net.SetWriteDeadline(time.Now().Add(writeWithin))
	_, err := k.net.Write(k.out)
	return err
}

// send is write. If that fails, it ends the connection.
func (k *conn) send(command fields) {
	if err := k.write(command); err != nil {
		k.fail(err)
	}
}

// ask sends a request and waits for its answer.
func (k *conn) ask(ctx context.Context, request uint64, what fields) (command, error) {
	answer := make(chan command, 1)
	k.mu.Lock()
	if k.err != nil {
		k.mu.Unlock()
		return command{}, k.why()
	}
	k.waiting[request] = answer
	k.mu.Unlock()
	k.send(what)
	select {
	case a := <-answer:
		if a.kind == cmdError {
			return a, &Refused{a.code, a.message}
		}
		return a, nil
	case <-k.ended:
		return command{}, k.why()
	case <-ctx.Done():
		k.mu.Lock()
		delete(k.waiting, request)
		k.mu.Unlock()
		return command{}, context.Cause(ctx)
	}
}

// read handles what comes, until the connection ends.
func (k *conn) read() {
	var scratch []byte
	for {
		c, payload, err := readFrame(k.in, k.most, &scratch)
		if err != nil {
			k.fail(err)
			return
		}
		switch c.kind {
		case cmdMessage:
			k.mu.Lock()
			r := k.readers[c.consumer]
			k.mu.Unlock()
			if r == nil { // it is closed
				release(payload)
				continue
			}
			r.came(Entry{Ledger: c.ledger, Entry: c.entry, frame: payload})
		case cmdSuccess, cmdError, cmdLookupResponse:
			k.mu.Lock()
			w := k.waiting[c.request]
			delete(k.waiting, c.request)
			k.mu.Unlock()
			if w != nil {
				w <- c
			}
		case cmdCloseConsumer, cmdTopicMigrated:
			if r := k.forget(c.consumer); r != nil {
				r.fail(ErrMoved)
			}
		case cmdPing:
			k.send(base(cmdPong, nil))
		case cmdAuthChallenge:
			k.c.work.Go(func() { // an issuer may have to be asked
				if err := k.renew(); err != nil {
					k.fail(err)
				}
			})
		}
	}
}

// forget takes a Reader out of the connection.
func (k *conn) forget(id uint64) *Reader {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.readers[id]
	delete(k.readers, id)
	return r
}

// keepAlive sends pings. It ends the connection if nothing comes, not even their answers.
func (k *conn) keepAlive() {
	every := k.c.o.AliveEvery
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-k.ended:
			return
		case <-t.C:
		}
		if silent := time.Since(began) - time.Duration(k.heard.Load()); silent > 2*every {
			k.fail(errors.New("nothing came from the broker for " + silent.Round(time.Second).String()))
			return
		}
		k.send(base(cmdPing, nil))
	}
}

// subscribe opens a Reader on the connection.
func (k *conn) subscribe(ctx context.Context, topic string, ledger, entry int64) (*Reader, error) {
	id := k.c.ids.Add(1)
	r := newReader(k, id)
	k.mu.Lock()
	if k.err != nil {
		k.mu.Unlock()
		return nil, k.why()
	}
	k.readers[id] = r // entries come only after permits
	k.mu.Unlock()
	request := k.c.ids.Add(1)
	if _, err := k.ask(ctx, request, subscribeCommand(topic, subscription(id), id, request, ledger, entry)); err != nil {
		if k.forget(id); k.why() == nil { // the broker may have opened it all the same
			k.send(closeConsumerCommand(id, k.c.ids.Add(1)))
		}
		return nil, err
	}
	return r, nil
}
