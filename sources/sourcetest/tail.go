package sourcetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/sources"
)

// far is how far ahead of head the suite reads.
const far = 1 << 40

// tail: a range that ends ahead of head gives each record as it comes, says where
// the head is, waits there, and stops waiting when it is told to.
func (s *suite) tail() {
	if s.h.Tail == nil {
		return
	}
	p, before := s.place(40)
	src := s.h.Tail(s, p)
	s.Cleanup(func() { src.Close() })
	parts, err := partitionsOf(s.Context(), src)
	if err != nil {
		s.Fatal(err)
	}
	bounds, err := boundsOf(s.Context(), src, parts)
	if err != nil {
		s.Fatal(err)
	}
	got := make(chan []byte, 1000)
	waiting := make([]atomic.Int64, len(parts)) // the head where a reader waits
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error, len(parts))
	for i, id := range parts {
		segs, err := segmentsAfter(s.Context(), src, id, -1, 10)
		if err != nil || len(segs) != 1 || segs[0].Sealed || bounds[i].Bounded {
			s.Fatalf("segments %v, bounds %+v (%v)", segs, bounds[i], err)
		}
		g := segs[0]
		r := sources.Range{Partition: id, Segment: g.ID, Start: g.Start, End: g.End + far}
		go func() { ended <- follow(ctx, src, r, g.Locator, got, func(head int64) { waiting[i].Store(head) }) }()
	}
	seen := map[int]bool{}
	s.collect(got, seen, len(before))
	for round := range 5 {
		more := s.records(len(before)+round*30, 30, 50)
		p.Produce(s, more)
		s.collect(got, seen, len(before)+(round+1)*30)
	}
	bounds, err = boundsOf(s.Context(), src, parts)
	if err != nil {
		s.Fatal(err)
	}
	s.until("the readers are at head", func() bool {
		for i := range parts {
			if waiting[i].Load() != bounds[i].Head.Offset {
				return false
			}
		}
		return true
	})
	cancel()
	timeout := time.After(patience)
	for range parts {
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				s.Errorf("a reader that waited ended with %v", err)
			}
		case <-timeout:
			s.Fatal("a cancelled reader does not end")
		}
	}
}

// follow reads a range until an error. As an agent does, it opens another cursor after a temporary one.
func follow(ctx context.Context, src sources.Source, r sources.Range, locator []byte, got chan<- []byte, onHead func(head int64)) error {
	from := start(r)
	return again(ctx, func() error {
		c, err := src.Open(ctx, r, from, locator)
		if err != nil {
			return err
		}
		defer c.Close()
		if tailing, is := c.(sources.Tailing); is {
			tailing.OnHead(onHead)
		}
		var b sources.Batch
		for {
			if err := c.Next(ctx, &b); err != nil {
				return err
			}
			for _, g := range appendBatch(nil, 0, &b) {
				got <- g.Value
			}
			from.Offset = b.End
		}
	})
}

// collect takes records until n different ones were seen, each once.
func (s *suite) collect(got <-chan []byte, seen map[int]bool, n int) {
	s.Helper()
	timeout := time.After(patience)
	for len(seen) < n {
		select {
		case r := <-got:
			i, err := number(r)
			if err != nil || seen[i] {
				s.Fatalf("record %d comes twice, or is damaged (%v)", i, err)
			}
			seen[i] = true
		case <-timeout:
			s.Fatalf("%d records of %d came", len(seen), n)
		}
	}
}

func (s *suite) until(what string, ok func() bool) {
	s.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !ok(); <-tick.C {
		if time.Since(began) > patience {
			s.Fatalf("never: %s", what)
		}
	}
}
