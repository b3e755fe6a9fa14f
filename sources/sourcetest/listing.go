package sourcetest

import (
	"bytes"

	"github.com/headrace/headrace/sources"
)

func (s *suite) listing() {
	p, _ := s.place(200)
	src := s.open(p, nil)
	all := s.pieces(src)
	if len(all) == 0 {
		s.Fatal("no segments")
	}
	for i, one := range all {
		if i > 0 && all[i-1].part == one.part && all[i-1].seg.ID >= one.seg.ID {
			s.Fatalf("segment %d is listed after %d", one.seg.ID, all[i-1].seg.ID)
		}
		if one.seg.Start > one.seg.End {
			s.Fatalf("segment %d is [%d, %d)", one.seg.ID, one.seg.Start, one.seg.End)
		}
	}
	s.sameListing(s.listIn(s.open(p, nil), 1), all, "one at a time")
	s.sameListing(s.listIn(s.open(p, nil), 1000), all, "all at once")
	s.sameListing(s.listIn(s.open(p, segments(all)), 2), all, "with all known")
	s.sameListing(s.listIn(s.open(p, segments(all[:len(all)/2])), 2), all, "with half of it known")
}

func segments(all []piece) []sources.Segment {
	var some []sources.Segment
	for _, one := range all {
		some = append(some, one.seg)
	}
	return some
}

func (s *suite) listIn(src sources.Source, max int) []piece {
	s.Helper()
	parts, err := partitionsOf(s.Context(), src)
	if err != nil {
		s.Fatal(err)
	}
	var all []piece
	for _, p := range parts {
		for _, g := range Segments(s, src, p, max) {
			all = append(all, piece{p, g})
		}
	}
	return all
}

func (s *suite) sameListing(got, want []piece, how string) {
	s.Helper()
	if len(got) != len(want) {
		s.Fatalf("%s: %d segments, want %d", how, len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		if g.part != w.part || g.seg.ID != w.seg.ID || g.seg.Start != w.seg.Start || g.seg.End != w.seg.End ||
			g.seg.Name != w.seg.Name || !bytes.Equal(g.seg.Locator, w.seg.Locator) {
			s.Fatalf("%s: segment %+v, want %+v", how, g, w)
		}
	}
}

func (s *suite) growth() {
	p, _ := s.place(100)
	src := s.open(p, nil)
	before := s.pieces(src)
	old := map[sources.PartitionID][]Got{}
	for _, one := range before {
		old[one.part] = append(old[one.part], s.readWhole(src, one)...)
	}
	p.Produce(s, s.records(100, 60, 120))
	src = s.open(p, segments(before))
	count := 0
	for _, one := range s.pieces(src) {
		got := s.readWhole(src, one)
		count += len(got)
		same := min(len(got), len(old[one.part]))
		s.equal(got[:same], old[one.part][:same], false, "what was there before")
		old[one.part] = old[one.part][same:]
	}
	if count != 160 {
		s.Fatalf("%d records after 100 and 60 were produced", count)
	}
}

func (s *suite) bounds() {
	p, _ := s.place(100)
	src := s.open(p, nil)
	all := s.pieces(src)
	parts, err := partitionsOf(s.Context(), src)
	if err != nil {
		s.Fatal(err)
	}
	bounds, err := boundsOf(s.Context(), src, parts)
	if err != nil {
		s.Fatal(err)
	}
	if len(bounds) != len(parts) {
		s.Fatalf("%d bounds of %d partitions", len(bounds), len(parts))
	}
	for i, b := range bounds {
		if b.Partition != parts[i] || b.Err != nil {
			s.Fatalf("bounds %+v of %s", b, parts[i])
		}
		for _, one := range all {
			low := sources.Position{Segment: one.seg.ID, Offset: one.seg.Start}
			high := sources.Position{Segment: one.seg.ID, Offset: one.seg.End}
			if one.part == b.Partition && (low.Compare(b.Low) < 0 || high.Compare(b.Head) > 0) {
				s.Errorf("segment %+v is not in %+v", one.seg, b)
			}
		}
	}
}

func (s *suite) foreign() {
	p, _ := s.place(5)
	src := s.open(p, nil)
	one := s.pieces(src)[0]
	const other = sources.PartitionID("no:such:partition")
	if _, err := src.Segments(s.Context(), other, -1, 10); err == nil {
		s.Error("its segments were listed")
	}
	if b, err := src.Bounds(s.Context(), []sources.PartitionID{other}); err == nil && b[0].Err == nil {
		s.Error("its bounds were told")
	}
	r := one.whole()
	r.Partition = other
	if c, err := src.Open(s.Context(), r, start(r), one.seg.Locator); err == nil {
		c.Close()
		s.Error("it was opened")
	}
}

func (s *suite) locator() {
	p, _ := s.place(5)
	src := s.open(p, nil)
	one := s.pieces(src)[0]
	if len(one.seg.Locator) == 0 {
		return // the segment's number says all
	}
	r := one.whole()
	for n := range one.seg.Locator {
		if c, err := src.Open(s.Context(), r, start(r), one.seg.Locator[:n]); err == nil {
			c.Close()
			s.Fatalf("opened by the first %d of %d bytes", n, len(one.seg.Locator))
		}
	}
}
