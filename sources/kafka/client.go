package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

const (
	clientID     = "headrace"
	metadataTTL  = time.Second // after so long a moved leader is noticed
	idleConns    = 30 * time.Second
	dialWithin   = 5 * time.Second  // for all addresses of one broker
	dialOne      = 3 * time.Second  // for one of them
	answerWithin = 15 * time.Second // for requests that the broker answers at once; for each piece of an answer to a Fetch
	smallAnswer  = 64 << 20         // limit of answers without records; metadata of very many partitions fits
)

// Versions of the requests that we encode ourselves.
var ourVersions = map[protocol.ApiKey]int16{protocol.Fetch: 13, protocol.ListOffsets: 7, protocol.Metadata: 12, protocol.DescribeLogDirs: 2,
	protocol.OffsetForLeaderEpoch: 4}

// client sends requests to the brokers of one cluster.
type client struct {
	addr      net.Addr
	transport *kafkago.Transport
	kafka     *kafkago.Client
	mechanism string // of SASL, for errors
	user      string

	mu       sync.Mutex // guards what follows
	checked  bool       // the brokers know ourVersions
	checking *checking  // the question for them that is under way, or nil
}

// checking is a question for the versions that the brokers know, for all who wait for its answer.
type checking struct {
	ended chan struct{}
	err   error
	gone  bool // it ended because its caller gave up, which says nothing about the brokers
}

func newClient(o *Options) *client {
	tr := &kafkago.Transport{ClientID: clientID, MetadataTTL: metadataTTL, MetadataTopics: o.Topics,
		IdleTimeout: idleConns, Dial: dial, DialTimeout: dialWithin, TLS: o.TLS, SASL: o.SASL}
	addr := kafkago.TCP(o.Brokers...)
	return &client{addr: addr, transport: tr, mechanism: o.mechanism(), user: o.User,
		kafka: &kafkago.Client{Addr: addr, Transport: tr, Timeout: answerWithin}}
}

func (c *client) close() { c.transport.CloseIdleConnections() }

// check asks once whether the brokers know our requests. It is the first request of all, so
// wrong passwords and certificates show here. All who call it meanwhile share the answer, and its
// error too. Otherwise 500 partitions would wait for 500 failures, one after the other. A context
// ends its own caller's wait only.
func (c *client) check(ctx context.Context) error {
	for {
		k, first := c.checks()
		switch {
		case k == nil:
			return nil
		case first:
			k.err = c.versions(ctx)
			k.gone = ctx.Err() != nil
			c.mu.Lock()
			c.checked, c.checking = k.err == nil, nil
			c.mu.Unlock()
			close(k.ended)
			return k.err
		}
		select {
		case <-k.ended:
		case <-ctx.Done():
			return c.explain(ctx, ctx.Err())
		}
		if k.err == nil || !k.gone {
			return k.err
		}
	}
}

// checks returns the question to wait for, or a new one and true: the caller asks. It returns nil
// if the brokers are checked.
func (c *client) checks() (k *checking, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.checked {
		return nil, false
	}
	if c.checking == nil {
		c.checking, first = &checking{ended: make(chan struct{})}, true
	}
	return c.checking, first
}

// versions asks which versions of our requests the brokers know.
func (c *client) versions(ctx context.Context) error {
	res, err := c.kafka.ApiVersions(ctx, &kafkago.ApiVersionsRequest{})
	if err != nil {
		return c.explain(ctx, err)
	}
	if res.Error != nil {
		return c.explain(ctx, res.Error)
	}
	known := map[protocol.ApiKey]int{}
	for _, k := range res.ApiKeys {
		known[protocol.ApiKey(k.ApiKey)] = k.MaxVersion
	}
	for key, version := range ourVersions {
		if known[key] < int(version) {
			return fmt.Errorf("the Kafka brokers at %s know %s up to v%d, and v%d is needed: use Kafka 3.1 or newer", c.addr, key, known[key], version)
		}
	}
	return nil
}

// exchange is one raw request and its answer.
type exchange struct {
	key     protocol.ApiKey
	route   route
	request []byte
	answer  []byte              // filled in; its memory is reused
	limit   int                 // most bytes of the answer
	came    func(answer []byte) // if set, it is called after each piece with all bytes that have come
	moved   func()              // if set, it is called when the exchange begins, and after each piece
}

// route finds the broker to ask.
type route func(protocol.Cluster) (protocol.Broker, error)

// anyBroker is the route of questions that every broker answers.
func anyBroker(protocol.Cluster) (protocol.Broker, error) { return protocol.Broker{ID: -1}, nil }

// leaderOf is the route to the leader of a partition. If there is none now, it returns
// kafka-go's own error.
func leaderOf(topic string, number int32) route {
	return func(c protocol.Cluster) (protocol.Broker, error) {
		p, ok := c.Topics[topic].Partitions[number]
		if !ok {
			return protocol.Broker{}, kafkago.UnknownTopicOrPartition
		}
		b, ok := c.Brokers[p.Leader]
		if !ok {
			return protocol.Broker{}, kafkago.LeaderNotAvailable
		}
		return b, nil
	}
}

func broker(id int32) route {
	return func(c protocol.Cluster) (protocol.Broker, error) {
		b, ok := c.Brokers[id]
		if !ok {
			return b, kafkago.BrokerNotAvailable
		}
		return b, nil
	}
}

func (x *exchange) ApiKey() protocol.ApiKey                                { return x.key }
func (x *exchange) Broker(c protocol.Cluster) (protocol.Broker, error)     { return x.route(c) }
func (x *exchange) Required(map[protocol.ApiKey]int16) bool                { return true }
func (x *exchange) RawExchange(rw io.ReadWriter) (protocol.Message, error) { return x, x.over(rw) }

var _ protocol.RawExchanger = (*exchange)(nil)
var _ protocol.BrokerMessage = (*exchange)(nil)

// correlation is the same in every request, because a connection has one request at a time.
const correlation = 0x68656164

func (x *exchange) over(rw io.ReadWriter) error {
	if c, ok := rw.(interface{ SetDeadline(time.Time) error }); ok && x.moved != nil {
		watch := x.moved
		x.moved = func() { watch(); _ = c.SetDeadline(time.Now().Add(answerWithin)) }
		defer func() { _ = c.SetDeadline(time.Time{}) }()
	}
	x.move()
	if _, err := rw.Write(x.request); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(rw, size[:]); err != nil {
		return err
	}
	n := int64(binary.BigEndian.Uint32(size[:]))
	if n < 5 || n > int64(x.limit) {
		return fmt.Errorf("an answer of %d bytes where at most %d are taken: %w", n, x.limit, errAnswer)
	}
	if int64(cap(x.answer)) < n {
		x.answer = make([]byte, n)
	}
	x.answer = x.answer[:n]
	for have := 0; have < len(x.answer); {
		next := have + readPiece
		if next+readPiece/4 > len(x.answer) { // a short rest is read with this piece
			next = len(x.answer)
		}
		if _, err := io.ReadFull(rw, x.answer[have:next]); err != nil {
			return err
		}
		if have = next; x.came != nil {
			x.came(x.answer[:have])
		}
		x.move()
	}
	if got := binary.BigEndian.Uint32(x.answer); got != correlation {
		return fmt.Errorf("the answer to another request (%x): %w", got, errAnswer)
	}
	return nil
}

func (x *exchange) move() {
	if x.moved != nil {
		x.moved()
	}
}

// patient returns a context for the exchange that ends when nothing has moved for answerWithin.
// Over a slow link, a large answer takes longer than that as a whole, and would never come.
func (x *exchange) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	watch := time.AfterFunc(answerWithin, func() { cancel(context.DeadlineExceeded) })
	x.moved = func() { watch.Reset(answerWithin) }
	return ctx, func() { watch.Stop(); cancel(nil) }
}

var errAnswer = errors.New("not what Kafka answers")

// request begins a request that we encode ourselves. All of them have the flexible header.
func request(key protocol.ApiKey) *writer {
	w := &writer{b: make([]byte, 4, 256)} // its size, filled in by ask
	w.i16(int16(key))
	w.i16(ourVersions[key])
	w.i32(correlation)
	w.short(clientID)
	w.tags()
	return w
}

// ask sends a request and returns a reader that stands after the header of the answer. into
// is memory for the answer. After an error somebody may still write to it: drop it then.
func (c *client) ask(ctx context.Context, key protocol.ApiKey, to route, w *writer, limit int, into []byte) (*reader, error) {
	return c.exchange(ctx, &exchange{key: key, route: to, request: w.b, answer: into, limit: limit})
}

// exchange is ask with a prepared exchange.
func (c *client) exchange(ctx context.Context, x *exchange) (*reader, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(x.request, uint32(len(x.request)-4))
	asking, cancel := context.WithTimeout(ctx, answerWithin)
	if x.key == protocol.Fetch {
		cancel()
		asking, cancel = x.patient(ctx)
	}
	defer cancel()
	if _, err := c.transport.RoundTrip(asking, c.addr, x); err != nil {
		if asking.Err() != nil && ctx.Err() == nil {
			err = context.Cause(asking)
		}
		return nil, c.explain(ctx, err)
	}
	r := &reader{b: x.answer, at: 4}
	r.tags()
	return r, nil
}
