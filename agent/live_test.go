package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/headrace/headrace/agent"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// river is input without an end, in memory: partitions that grow when a test says so.
type river struct {
	sources.Source
	mu      sync.Mutex
	heads   []int64
	grown   chan struct{} // closed and replaced when records are added
	readers int           // readers that wait at a head
}

func newRiver(partitions int) *river {
	return &river{heads: make([]int64, partitions), grown: make(chan struct{})}
}

func (r *river) grow(partition int, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heads[partition] += n
	close(r.grown)
	r.grown = make(chan struct{})
}

func (r *river) at(partition int) (head int64, grown <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heads[partition], r.grown
}

func (r *river) waits(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers += n
}

func (r *river) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readers
}

func (r *river) Close() error { return nil }

func (r *river) Open(_ context.Context, rng sources.Range, from sources.Position, _ []byte) (sources.Cursor, error) {
	c := &riverCursor{r: r, end: rng.End, next: from.Offset}
	_, err := fmt.Sscanf(string(rng.Partition), "river:%d", &c.partition)
	return c, err
}

type riverCursor struct {
	r         *river
	partition int
	next, end int64
	onHead    func(int64)
}

func (c *riverCursor) OnHead(f func(int64)) { c.onHead = f }
func (c *riverCursor) Close() error         { return nil }

func (c *riverCursor) Next(ctx context.Context, b *sources.Batch) error {
	for c.next < c.end {
		head, grown := c.r.at(c.partition)
		c.onHead(head)
		if stop := min(head, c.end); c.next < stop {
			for b.Reset(); c.next < stop; c.next++ {
				from := int32(len(b.Arena))
				b.Arena = fmt.Append(b.Arena, c.next)
				b.Recs = append(b.Recs, sources.Record{Offset: c.next, Next: c.next + 1, Value: [2]int32{from, int32(len(b.Arena))}})
			}
			b.End = c.next
			return nil
		}
		c.r.waits(1)
		select {
		case <-grown:
			c.r.waits(-1)
		case <-ctx.Done():
			c.r.waits(-1)
			return ctx.Err()
		}
	}
	return io.EOF
}

const liveSpec = `
name: river
kafka: {brokers: ["nobody:1"], topic: river, end: never}
decode: {format: lines}
lease: {initial: 20, min: 1, max: 1000, target: 200ms}
`

// live is a master whose one dataset is a river.
func live(t *testing.T, r *river, more string) *realMaster {
	t.Helper()
	m := &realMaster{t: t, store: memstore.New(), model: "shared", ttl: longTTL, addr: ownPort(t)}
	m.start()
	t.Cleanup(func() { m.stop() })
	conn := m.conn()
	defer conn.Close()
	_, err := pb.NewDatasetsClient(conn).Apply(t.Context(), &pb.ApplyRequest{Yaml: liveSpec + more})
	check(t, err)
	var parts []serve.NewPartition
	for i := range r.heads {
		parts = append(parts, serve.NewPartition{ID: sources.PartitionID(fmt.Sprintf("river:%d", i)), Segments: []sources.Segment{{Locator: []byte("l"), Name: fmt.Sprint(i)}}})
	}
	check(t, m.srv.Join(t.Context(), 1, parts))
	return m
}

func (r *river) agent(m *realMaster, name string) *running {
	conn := m.conn()
	return startWith(m.t, conn, agent.Config{Name: name, Conn: conn, Socket: socketIn(m.t), Version: "test", ShareFrom: 1, Logger: logger(m.t).With("who", name),
		Open: func(context.Context, *dataset.Spec) (sources.Source, error) { return r, nil }})
}

// drinker is a trainer that steps every batch at once.
type drinker struct {
	t     *testing.T
	tr    *trainer
	s     *stream
	mu    sync.Mutex
	rows  map[[2]int64]int // by partition and offset
	parts map[int64]int
	mixed bool // a partition's records came in another order
	last  map[int64]int64
	ended chan struct{}
}

func drink(t *testing.T, socket string, rank uint32) *drinker {
	t.Helper()
	wait := int64(5)
	d := &drinker{t: t, rows: map[[2]int64]int{}, parts: map[int64]int{}, last: map[int64]int64{}, ended: make(chan struct{})}
	d.tr = must(hello(socket, frame.Hello{Rank: rank, WorldSize: 2}))(t)
	d.s = must(d.tr.open(1, frame.Open{Dataset: "river", Rows: 10, Track: true, MaxWaitMS: &wait}))(t)
	check(t, d.s.credit(8))
	go func() {
		defer close(d.ended)
		for step := int64(1); ; step++ {
			f, err := d.s.receive()
			if err != nil {
				return
			}
			d.mu.Lock()
			row := 0
			for _, sp := range f.Spans {
				for range sp.Rows {
					p, at := int64(sp.Partition), f.Offsets[row]
					d.rows[[2]int64{p, at}]++
					d.mixed = d.mixed || d.last[p] != at
					d.last[p] = at + 1
					row++
				}
				d.parts[int64(sp.Partition)]++
			}
			d.mu.Unlock()
			if d.s.step(step, f.Batches) != nil || d.s.credit(uint32(f.Batches)) != nil {
				return
			}
		}
	}()
	return d
}

// has counts the records that came, and fails on one that came twice.
func (d *drinker) has() (records, partitions int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for at, times := range d.rows {
		if times != 1 {
			d.t.Errorf("record %v came %d times, want once", at, times)
		}
	}
	return len(d.rows), len(d.parts)
}

func (d *drinker) leave() {
	d.s.close()
	<-d.ended
	d.tr.bye()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for timeout := deadline(t); !ok(); {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("this did not happen in time: %s", what)
		}
	}
}

// A reader that waits at the head of one partition does not keep the other partitions waiting. Neither
// does the end of a lease, which has 20 records here.
func TestOneTrainerReadsAllPartitionsOfALiveInputSideBySide(t *testing.T) {
	r := newRiver(3)
	m := live(t, r, "")
	d := drink(t, r.agent(m, "one").socket, 0)
	eventually(t, "a reader waits in each partition", func() bool { return r.waiting() == 3 })
	want := 0
	for round := range 30 {
		r.grow(round%3, int64(1+round))
		want += 1 + round
		eventually(t, fmt.Sprintf("%d records", want), func() bool { n, _ := d.has(); return n == want })
	}
	d.leave()
	eventually(t, "nobody waits when the trainer has left", func() bool { return r.waiting() == 0 })
}

// Guarantees 1 and 2 for input without an end: a trainer that comes later gets a share of the
// partitions. Each record comes once, whichever trainer stops, and also when the master restarts.
func TestALiveInputIsSharedWithWhoComesLaterAndEachRecordComesOnce(t *testing.T) {
	r := newRiver(4)
	m := live(t, r, "")
	first, second := r.agent(m, "one"), r.agent(m, "two")
	a := drink(t, first.socket, 0)
	eventually(t, "the first trainer has the leads of all partitions", func() bool { return r.waiting() == 4 })
	b := drink(t, second.socket, 1)
	made := 0
	flow := func() {
		for p := range 4 {
			r.grow(p, 3)
		}
		made += 12
	}
	eventually(t, "the second has two partitions", func() bool { flow(); _, n := b.has(); return n >= 2 })
	all := func() bool {
		x, _ := a.has()
		y, _ := b.has()
		return x+y == made
	}
	eventually(t, "all records", all)
	m.restart()
	for range 20 {
		flow()
	}
	eventually(t, "all records after a restart of the master", all)
	b.leave()
	flow()
	eventually(t, "all records after one has left", all)
	a.leave()
	for at := range a.rows {
		if b.rows[at] != 0 {
			t.Errorf("record %v came to both trainers", at)
		}
	}
}

// A range that another trainer gave back lies before the head. A trainer that waits at the head
// reads this range first.
func TestWhoWaitsAtTheHeadReadsWhatOthersGaveBack(t *testing.T) {
	r := newRiver(1)
	m := live(t, r, "")
	other := must(hello(r.agent(m, "one").socket, frame.Hello{WorldSize: 2}))(t)
	s := must(other.open(1, frame.Open{Dataset: "river", Rows: 10, Track: true}))(t)
	check(t, s.credit(1))
	r.grow(0, 45)
	must(s.receive())(t) // this trainer steps nothing
	d := drink(t, r.agent(m, "two").socket, 1)
	eventually(t, "the rest", func() bool { n, _ := d.has(); return n >= 25 })
	eventually(t, "a reader waits at the head", func() bool { return r.waiting() == 1 })
	s.close()
	eventually(t, "all records", func() bool { n, _ := d.has(); return n == 45 })
	other.bye()
	d.leave()
}

func TestALiveInputWithStrictOrderComesInOrder(t *testing.T) {
	r := newRiver(2)
	m := live(t, r, "order: strict\n")
	d := drink(t, r.agent(m, "one").socket, 0)
	want := 0
	for round := range 60 { // leases of 20 records end many times meanwhile
		r.grow(round%2, int64(1+round%13))
		want += 1 + round%13
		if round%7 == 0 {
			eventually(t, fmt.Sprintf("%d records", want), func() bool { n, _ := d.has(); return n == want })
		}
	}
	eventually(t, fmt.Sprintf("%d records", want), func() bool { n, _ := d.has(); return n == want })
	d.leave()
	if d.mixed {
		t.Error("records of a partition came in another order")
	}
}

func TestAnAgentOfALiveInputStopsAtOnce(t *testing.T) {
	r := newRiver(2)
	m := live(t, r, "")
	node := r.agent(m, "one")
	d := drink(t, node.socket, 0)
	eventually(t, "its readers wait", func() bool { return r.waiting() == 2 })
	began := time.Now()
	check(t, node.stop())
	if took := time.Since(began); took > time.Minute || r.waiting() != 0 {
		t.Errorf("the agent took %v to stop, and %d readers still wait, want none", took, r.waiting())
	}
	<-d.ended
	d.tr.drop()
	if _, err := os.Lstat(node.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there (%v)", err)
	}
}
