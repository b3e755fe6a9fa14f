package feed

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/proof/memsource"
	"github.com/headrace/headrace/sources"
)

// brokenOnce is a source of two records whose connection ends between them.
type brokenOnce struct {
	sources.Source
	opened int
}

func (s *brokenOnce) Open(_ context.Context, _ sources.Range, from sources.Position, _ []byte) (sources.Cursor, error) {
	s.opened++
	return &brokenCursor{at: from.Offset, whole: s.opened > 1}, nil
}

type brokenCursor struct {
	at    int64
	whole bool
}

func (c *brokenCursor) Next(_ context.Context, b *sources.Batch) error {
	switch {
	case c.at == 1 && !c.whole:
		return &sources.Temporary{Err: fmt.Errorf("read tcp: %w", io.EOF), Backoff: time.Millisecond}
	case c.at == 2:
		return io.EOF
	}
	b.Reset()
	b.Recs = append(b.Recs, sources.Record{Offset: c.at, Next: c.at + 1})
	c.at++
	b.End = c.at
	return nil
}

func (c *brokenCursor) Close() error { return nil }

// Guarantee 7: a connection that ends is never taken for the end of a range, even if its error
// wraps io.EOF.
func TestAConnectionThatEndsIsNotTheEndOfTheRange(t *testing.T) {
	l := &lease{grant: &pb.Grant{LeaseEnd: 2, Pieces: []*pb.Piece{{End: 2}}}}
	r := startReading(t.Context(), &Dataset{Source: &brokenOnce{}}, nil, l, 0, 2, make(chan struct{}, 1), &spareBatches{})
	defer r.stop(nil, &spareBatches{})
	records := 0
	for c := range r.out {
		if c.batch != nil {
			records += len(c.batch.Recs)
			r.free <- c.batch
		}
	}
	if records != 2 || !r.complete {
		t.Fatalf("%d of 2 records were read, complete: %v, want true", records, r.complete)
	}
}

// oneRecord is a source whose ranges have one record each, at their start.
type oneRecord struct{ sources.Source }

func (oneRecord) Open(_ context.Context, r sources.Range, _ sources.Position, _ []byte) (sources.Cursor, error) {
	return &brokenCursor{at: r.Start, whole: true}, nil
}

func TestTheNextLeaseIsBegunWhileRecordsOfOneWaitAndItsMemoryIsHandedOn(t *testing.T) {
	// A brokenCursor ends at 2.
	first := &lease{grant: &pb.Grant{LeaseEnd: 2, Pieces: []*pb.Piece{{Start: 1, OrderStart: 1, End: 2}}}, read: 1, end: 2}
	second := &lease{grant: &pb.Grant{LeaseEnd: 2, Pieces: []*pb.Piece{{End: 2}}}, end: 2}
	st := &stream{t: &trainer{srv: &Server{}}, ds: &Dataset{Source: oneRecord{}, Spec: &dataset.Spec{}}, leases: []*lease{first, second}}
	c := newCutter(st)
	c.now = []*lease{first}
	c.chosen()
	defer c.reset()
	for deadline := time.Now().Add(time.Minute); c.ahead == nil; runtime.Gosched() {
		if c.open(t.Context()); time.Now().After(deadline) {
			t.Fatal("the agent did not begin to read the second lease")
		}
	}
	if c.ahead.l != second || len(c.rds) != 1 || len(c.rds[0].out) != 1 {
		t.Fatalf("%d leases are read and %v is read ahead; want 1 and the second lease", len(c.rds), c.ahead.l)
	}
	ahead := c.ahead
	c.now = []*lease{second}
	c.chosen()
	c.open(t.Context())
	if len(c.rds) != 1 || c.rds[0] != ahead || c.ahead != nil {
		t.Error("the lease that was read ahead is read again from its start")
	}
	if n := len(c.spare.list); n != batchesAhead {
		t.Errorf("%d of %d batches of the first lease came back for use", n, batchesAhead)
	}
	// The lease was read ahead from 0. It begins at 1 now, so that reading cannot be used.
	c.stopReading()
	c.ahead, second.read = startReading(t.Context(), st.ds, nil, second, 0, 2, c.came, &c.spare), 1
	c.open(t.Context())
	if len(c.rds) != 1 || c.rds[0].from != 1 {
		t.Error("a reading from another position was used")
	}
}

// sealed is a source of one segment that has one record, at 1, and was sealed at 5. A cursor whose
// range ends after 5 waits.
type sealed struct{ sources.Source }

func (sealed) Open(_ context.Context, r sources.Range, from sources.Position, _ []byte) (sources.Cursor, error) {
	return &sealedCursor{at: from.Offset, end: r.End}, nil
}

type sealedCursor struct{ at, end int64 }

func (c *sealedCursor) Next(ctx context.Context, b *sources.Batch) error {
	if c.at <= 1 {
		b.Reset()
		b.Recs, b.End = append(b.Recs, sources.Record{Offset: 1, Next: 2}), 2
		c.at = 2
		return nil
	}
	if c.end <= 5 {
		return io.EOF
	}
	<-ctx.Done()
	return ctx.Err()
}

func (c *sealedCursor) Close() error { return nil }

// Guarantee 1: when a segment is sealed, the positions after its last record are settled, even if a
// reading that began before waits for a record there.
func TestALeaseWhoseEndWasMovedBackIsReadToIt(t *testing.T) {
	l := &lease{grant: &pb.Grant{LeaseEnd: 10, Pieces: []*pb.Piece{{End: 10}}}, read: 2, end: 10}
	st := &stream{t: &trainer{srv: &Server{}}, ds: &Dataset{Source: sealed{}, Spec: &dataset.Spec{Source: &memsource.Spec{End: "never"}}}, leases: []*lease{l}}
	c := newCutter(st)
	c.now = []*lease{l}
	c.chosen()
	defer c.reset()
	c.open(t.Context())
	l.end = 5
	c.open(t.Context())
	rd := c.rds[0]
	deadline := time.After(time.Minute)
	for {
		select {
		case ch, more := <-rd.out:
			if !more {
				if !rd.complete {
					t.Error("the reading ended before the end of its lease")
				}
				return
			}
			if ch.batch != nil || ch.err != io.EOF {
				t.Fatalf("the reading of positions without a record gave %+v, want io.EOF", ch)
			}
		case <-deadline:
			t.Fatal("the reading waits beyond the end of its lease")
		}
	}
}

// A broker may send one partition more slowly than a trainer takes it. So a kind of source says how
// many partitions a stream reads at a time. In each partition the stream reads the first range.
func TestABoundedInputIsReadInAsManyPartitionsAtATimeAsItsKindSays(t *testing.T) {
	granted := func(id hold.Lease, partition uint32, start int64) *lease {
		return &lease{id: id, end: start + 10, read: start, cut: start, sent: start, grant: &pb.Grant{Partition: partition, LeaseStart: start, LeaseEnd: start + 10}}
	}
	read := func(spec *dataset.Spec, dry ...hold.Lease) (ids []hold.Lease) {
		st := &stream{t: &trainer{srv: &Server{}}, ds: &Dataset{Spec: spec}, credited1: true, leases: []*lease{
			granted(1, 1, 20), granted(2, 1, 30), granted(3, 2, 0), granted(4, 3, 0), granted(5, 1, 0)}}
		for _, l := range st.leases {
			l.dry = slices.Contains(dry, l.id)
		}
		c := newCutter(st)
		if !c.next() {
			t.Fatal("no lease is read")
		}
		for _, l := range c.now {
			ids = append(ids, l.id)
		}
		return ids
	}
	two := &memsource.Spec{End: "latest"}
	if two.Kind().SideBySide != 2 {
		t.Fatalf("the kind reads %d partitions at a time, this test needs 2", two.Kind().SideBySide)
	}
	for _, c := range []struct {
		spec *dataset.Spec
		dry  []hold.Lease
		want []hold.Lease
	}{
		{&dataset.Spec{Source: two}, nil, []hold.Lease{5, 3}},
		{&dataset.Spec{Source: two}, []hold.Lease{5}, []hold.Lease{1, 3}},
		{&dataset.Spec{Source: two}, []hold.Lease{5, 1, 2}, []hold.Lease{3, 4}},
		{&dataset.Spec{Source: two}, []hold.Lease{1, 2, 3, 5}, []hold.Lease{4}},
		{&dataset.Spec{Source: two, BitExact: &dataset.BitExact{VirtualRanks: 1}}, nil, []hold.Lease{1}},
		{&dataset.Spec{Source: &memsource.Spec{End: "never"}}, nil, []hold.Lease{5, 3, 4}},
		{&dataset.Spec{}, nil, []hold.Lease{1}},
	} {
		if got := read(c.spec, c.dry...); !slices.Equal(got, c.want) {
			t.Errorf("kind %q, bit_exact %v, leases %v read to their end: leases %v are read, want %v", c.spec.Kind().Name, c.spec.BitExact != nil, c.dry, got, c.want)
		}
	}
}
