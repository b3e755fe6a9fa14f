package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// raw passes messages through that are encoded already.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	b := v.(*[]byte)
	*b = (*b)[:0]
	for _, part := range data {
		*b = append(*b, part.ReadOnlyData()...)
	}
	return nil
}

type result struct {
	rate     float64 // answered pairs per second, in the middle of the run
	total    int64   // answered in all
	p50, p99 time.Duration
}

// run loads the master in one mode and waits until all is answered.
func run(addr string, mo mode, length time.Duration) (result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), length+30*time.Second)
	defer cancel()
	clients := make([]*client, streams)
	for i := range clients {
		c, err := connect(ctx, addr, mo, uint32(i))
		if err != nil {
			return result{}, err
		}
		defer c.conn.Close()
		clients[i] = c
	}
	var wg sync.WaitGroup
	errs := make([]error, streams)
	begin := time.Now()
	warm := length / 10
	for i, c := range clients {
		wg.Go(func() { errs[i] = c.load(begin.Add(warm), begin.Add(warm+length)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return result{}, err
	}
	var r result
	var waits []time.Duration
	for _, c := range clients {
		r.total += c.answered
		r.rate += float64(c.counted) / length.Seconds()
		waits = append(waits, c.waits...)
	}
	slices.Sort(waits)
	if len(waits) > 0 {
		r.p50, r.p99 = waits[len(waits)/2], waits[len(waits)*99/100]
	}
	return r, nil
}

// client is one agent with one worker.
type client struct {
	mode   mode
	conn   *grpc.ClientConn
	stream grpc.ClientStream
	buf    []byte

	next uint64               // request id
	open map[uint64]*exchange // requests whose grants have not all come
	acks int                  // acks that were sent and not answered

	tally []byte // the same in each ack: number of records, and their first and last time

	from, to          time.Time
	answered, counted int64
	waits             []time.Duration
}

// exchange is one message of the client: a request, and its grants.
type exchange struct {
	sent   time.Time
	grants int
	acks   []byte // encoded, for the next message
}

func connect(ctx context.Context, addr string, mo mode, rank uint32) (*client, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{})))
	if err != nil {
		return nil, err
	}
	st, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, headracev1.Shards_Session_FullMethodName)
	if err != nil {
		return nil, err
	}
	c := &client{mode: mo, conn: conn, stream: st, open: map[uint64]*exchange{}}
	if c.tally, err = proto.Marshal(&headracev1.Tally{Rows: 1000, Oldest: 1_764_000_000_000, Newest: 1_764_000_060_000}); err != nil {
		return nil, err
	}
	inc := rand.Uint64() | 1
	hello, err := proto.Marshal(&headracev1.AgentMessage{
		Hello: &headracev1.Hello{Protocol: 1, Agent: fmt.Sprintf("bench-%d-%d", rank, inc), Incarnation: inc},
		Joins: []*headracev1.Join{{Worker: 1, Rank: rank, Incarnation: inc, WorldSize: streams}},
	})
	if err != nil {
		return nil, err
	}
	if err := st.SendMsg(&hello); err != nil {
		return nil, err
	}
	var reply headracev1.MasterMessage
	if err := st.RecvMsg(&c.buf); err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(c.buf, &reply); err != nil {
		return nil, err
	}
	if len(reply.Joins) != 1 || reply.Joins[0].Refused {
		return nil, fmt.Errorf("the worker may not join: %v", &reply)
	}
	return c, nil
}

// load asks and acks until `to`. Pairs that are answered in [from, to) are counted.
func (c *client) load(from, to time.Time) error {
	c.from, c.to = from, to
	for range c.mode.outstanding {
		if err := c.ask(&exchange{}); err != nil {
			return err
		}
	}
	for len(c.open) > 0 || c.acks > 0 {
		if err := c.stream.RecvMsg(&c.buf); err != nil {
			return err
		}
		if err := c.take(c.buf, time.Now()); err != nil {
			return err
		}
	}
	return c.stream.CloseSend()
}

// ask sends the acks of an exchange and, while time is left, the next request.
func (c *client) ask(x *exchange) error {
	now := time.Now()
	msg := slices.Clone(x.acks) // gRPC keeps it until it is written
	c.acks += x.grants
	*x = exchange{sent: now, acks: x.acks[:0]}
	if now.Before(c.to) {
		c.next++
		c.open[c.next] = x
		body := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), c.next)
		for num, v := range map[protowire.Number]uint64{2: 1, 3: 1, 5: uint64(c.mode.batch)} {
			body = protowire.AppendVarint(protowire.AppendTag(body, num, protowire.VarintType), v)
		}
		msg = protowire.AppendBytes(protowire.AppendTag(msg, 13, protowire.BytesType), body)
	}
	if len(msg) == 0 {
		return nil
	}
	return c.stream.SendMsg(&msg)
}

// take reads one MasterMessage.
func (c *client) take(b []byte, now time.Time) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return protowire.ParseError(n)
		}
		var err error
		switch num {
		case 5:
			err = c.ackResult(b[:n], now)
		case 10:
			err = c.grant(b[:n], now)
		case 7, 8, 9:
			err = fmt.Errorf("the master has sent field %d, which this client does not expect", num)
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (c *client) ackResult(b []byte, now time.Time) error {
	b, _ = protowire.ConsumeBytes(b)
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeField(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if num == 3 && typ == protowire.VarintType {
			return errors.New("an ack was refused")
		}
		b = b[n:]
	}
	c.acks--
	c.answered++
	if !now.Before(c.from) && now.Before(c.to) {
		c.counted++
	}
	return nil
}

// grant adds an ack of the whole lease. It sends the exchange on when this was the last grant of its
// request.
func (c *client) grant(b []byte, now time.Time) error {
	b, _ = protowire.ConsumeBytes(b)
	var (
		id, start, end uint64
		token          []byte
	)
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch num {
		case 1:
			id, n = protowire.ConsumeVarint(b)
		case 2:
			token, n = protowire.ConsumeBytes(b)
		case 9:
			start, n = protowire.ConsumeVarint(b)
		case 10:
			end, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
	}
	x := c.open[id]
	if x == nil {
		return fmt.Errorf("a grant for request %d, which is not open", id)
	}
	x.acks = protowire.AppendTag(x.acks, 5, protowire.BytesType)
	x.acks = protowire.AppendVarint(x.acks, uint64(1+protowire.SizeBytes(len(token))+1+protowire.SizeVarint(end)+
		1+protowire.SizeVarint(start)+1+protowire.SizeBytes(len(c.tally))))
	x.acks = protowire.AppendBytes(protowire.AppendTag(x.acks, 1, protowire.BytesType), token)
	x.acks = protowire.AppendVarint(protowire.AppendTag(x.acks, 2, protowire.VarintType), end)
	x.acks = protowire.AppendVarint(protowire.AppendTag(x.acks, 6, protowire.VarintType), start)
	x.acks = protowire.AppendBytes(protowire.AppendTag(x.acks, 7, protowire.BytesType), c.tally)
	if x.grants++; x.grants < c.mode.batch {
		return nil
	}
	if now.After(c.from) {
		c.waits = append(c.waits, now.Sub(x.sent))
	}
	delete(c.open, id)
	return c.ask(x)
}
