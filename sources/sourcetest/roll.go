package sourcetest

import (
	"context"
	"errors"

	"github.com/headrace/headrace/sources"
)

// rollover: a growing segment is sealed where it ended, and another one begins. Each
// record is in exactly one of them, and a reader of the old one neither misses its last
// records nor reads on into the next.
func (s *suite) rollover() {
	if s.h.Tail == nil || s.h.Roll == nil {
		return
	}
	p := s.h.New(s)
	src := s.h.Tail(s, p)
	s.Cleanup(func() { src.Close() })
	parts, err := partitionsOf(s.Context(), src)
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.Context())
	got, ended := make(chan []byte, 1000), make(chan error, 1000)
	readers := 0
	tail := func(id sources.PartitionID, g sources.Segment) {
		r := sources.Range{Partition: id, Segment: g.ID, Start: g.Start, End: g.Start + far}
		readers++
		go func() { ended <- follow(ctx, src, r, g.Locator, got, func(int64) {}) }()
	}
	last := map[sources.PartitionID]sources.Segment{}
	seen := map[int]bool{}
	const rounds, each = 4, 25
	all := map[sources.PartitionID][]sources.Segment{}
	for round := range rounds {
		if round > 0 {
			s.h.Roll(s, p)
		}
		p.Produce(s, s.records(round*each, each, 50))
		for _, id := range parts {
			old, known := last[id]
			after := int64(-1)
			if known {
				after = old.ID - 1
			}
			segs, err := segmentsAfter(s.Context(), src, id, after, 100)
			if err != nil {
				s.Fatal(err)
			}
			if known {
				s.sealed(id, old, segs)
				all[id] = append(all[id], segs[0])
				segs = segs[1:]
			}
			if len(segs) == 0 || segs[len(segs)-1].Sealed {
				s.Fatalf("%s has no growing segment: %+v", id, segs)
			}
			for i, g := range segs {
				if i < len(segs)-1 && !g.Sealed {
					s.Fatalf("%s: segment %d is not sealed, and others come after it", id, g.ID)
				}
				if tail(id, g); i < len(segs)-1 {
					all[id] = append(all[id], g)
				}
			}
			last[id] = segs[len(segs)-1]
		}
		s.collect(got, seen, (round+1)*each)
	}
	bounds, err := boundsOf(s.Context(), src, parts)
	if err != nil {
		s.Fatal(err)
	}
	for i, id := range parts {
		if b := bounds[i]; b.Err != nil || b.Head.Segment != last[id].ID {
			s.Errorf("%s reaches to %+v (%v), its growing segment is %d", id, b.Head, b.Err, last[id].ID)
		}
	}
	cancel()
	for range readers {
		// These ranges end ahead of where their segments were sealed. The master cuts such a
		// range short at the seal. Until then its reader waits. If the reader ended by itself,
		// reading would go on from the end of its range, which lies after the seal.
		if err := <-ended; !errors.Is(err, context.Canceled) {
			s.Errorf("a reader ahead of where its segment was sealed has ended: %v", err)
		}
	}
	s.readAgain(src, all, seen, rounds*each)
}

// sealed: the segment that grew before is listed first, with its end.
func (s *suite) sealed(id sources.PartitionID, old sources.Segment, segs []sources.Segment) {
	s.Helper()
	if len(segs) < 2 || segs[0].ID != old.ID || !segs[0].Sealed {
		s.Fatalf("%s: after segment %d rolled over, %+v are listed from it on", id, old.ID, segs)
	}
	if g := segs[0]; g.Start != old.Start || g.End < old.End || g.Name != old.Name || string(g.Locator) != string(old.Locator) {
		s.Errorf("%s: segment %+v was %+v before it was sealed", id, g, old)
	}
}

// readAgain reads the sealed segments as ranges: each record that is in one of them was
// seen by the readers of the tail.
func (s *suite) readAgain(src sources.Source, all map[sources.PartitionID][]sources.Segment, seen map[int]bool, most int) {
	n := 0
	for id, segs := range all {
		for _, g := range segs {
			for _, rec := range s.readWhole(src, piece{id, g}) {
				i, err := number(rec.Value)
				if err != nil || !seen[i] {
					s.Errorf("record %d of segment %d was not in its tail (%v)", i, g.ID, err)
				}
				seen[i] = false
				n++
			}
		}
	}
	if n == 0 || n >= most {
		s.Errorf("%d records of %d are in sealed segments", n, most)
	}
}
