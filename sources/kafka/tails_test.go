//go:build kafka

package kafka

import (
	"context"
	"encoding/binary"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/sources"
)

// counted counts connections that are open.
type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// A reader of many live partitions waits at all their heads with a few connections. Each record comes soon
// after it is written, and in order.
func TestFiveHundredHeadsTakeFewConnections(t *testing.T) {
	const partitions, each = 500, 4
	b := realBroker(t)
	topic := newTopic(t, b, partitions, nil)
	s := openFor(t, liveOptions(options(b, topic)))
	var open, most atomic.Int64
	dialer := &net.Dialer{}
	s.client.transport.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if n := open.Add(1); n > most.Load() {
			most.Store(n)
		}
		return &counted{Conn: c, open: &open}, nil
	}
	parts, err := s.Partitions(t.Context())
	if err != nil || len(parts) != partitions {
		t.Fatalf("%d partitions (%v)", len(parts), err)
	}
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	type seen struct {
		partition int
		number    uint64
		late      time.Duration
	}
	got, waits := make(chan seen, partitions*each), make(chan int, partitions)
	for i, id := range parts {
		segs, err := s.Segments(t.Context(), id, -1, 1)
		if err != nil || len(segs) != 1 {
			t.Fatalf("%v (%v)", segs, err)
		}
		c, err := s.Open(t.Context(), sources.Range{Partition: id, End: 1 << 40}, sources.Position{}, segs[0].Locator)
		if err != nil {
			t.Fatal(err)
		}
		var once sync.Once
		c.(sources.Tailing).OnHead(func(int64) { once.Do(func() { waits <- i }) })
		readers.Go(func() {
			defer c.Close()
			var batch sources.Batch
			for {
				if err := c.Next(ctx, &batch); err != nil {
					if ctx.Err() == nil {
						t.Errorf("%s: %v", id, err)
					}
					return
				}
				for _, r := range batch.Recs {
					v := batch.Arena[r.Value[0]:r.Value[1]]
					sent := time.Unix(0, int64(binary.BigEndian.Uint64(v[8:])))
					got <- seen{i, binary.BigEndian.Uint64(v), time.Since(sent)}
				}
			}
		})
	}
	for range partitions {
		select {
		case <-waits:
		case <-time.After(5 * time.Minute):
			t.Fatalf("not all partitions have reported that they wait at their heads")
		}
	}
	atHeads := runtime.NumGoroutine() - before - partitions

	client, done := b.Client()
	defer done()
	var late []time.Duration
	next := map[int]uint64{}
	for n := range uint64(each) {
		for p := range partitions {
			v := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, n), uint64(time.Now().UnixNano()))
			res, err := client.Produce(t.Context(), &kafkago.ProduceRequest{Topic: topic, Partition: (p * 7) % partitions, RequiredAcks: kafkago.RequireOne,
				Records: kafkago.NewRecordReader(kafkago.Record{Value: kafkago.NewBytes(v)})})
			if err != nil || res.Error != nil {
				t.Fatal(err, res)
			}
		}
	}
	for range partitions * each {
		select {
		case g := <-got:
			if g.number != next[g.partition] {
				t.Fatalf("partition %d: record %d, want %d", g.partition, g.number, next[g.partition])
			}
			next[g.partition]++
			late = append(late, g.late)
		case <-time.After(5 * time.Minute):
			t.Fatalf("%d records of %d came", len(late), partitions*each)
		}
	}
	slices.Sort(late)
	t.Logf("%d partitions: at most %d connections, %d goroutines besides the readers; time from before the write to the reader: p50 %v, p99 %v, most %v",
		partitions, most.Load(), atHeads, late[len(late)/2], late[len(late)*99/100], late[len(late)-1])
	if most.Load() > 2*(fetchesMost+pollsMost) {
		t.Errorf("%d connections at a time", most.Load())
	}
	if atHeads > 6*(fetchesMost+pollsMost) { // kafka-go has three for each connection
		t.Errorf("%d goroutines besides the readers", atHeads)
	}
}
