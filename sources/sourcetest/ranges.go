package sourcetest

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/headrace/headrace/sources"
)

func (s *suite) roundTrip() {
	p, want := s.place(500)
	src := s.open(p, nil)
	byPart := map[sources.PartitionID][]Got{}
	count := 0
	for _, one := range s.pieces(src) {
		got := s.readWhole(src, one)
		byPart[one.part] = append(byPart[one.part], got...)
		count += len(got)
	}
	if count != len(want) {
		s.Fatalf("%d records were produced and %d were read", len(want), count)
	}
	for part, got := range byPart {
		last := -1
		for _, g := range got {
			n, err := number(g.Value)
			if err != nil {
				s.Fatalf("%s: %v", part, err)
			}
			if n <= last {
				s.Fatalf("%s: record %d comes after %d", part, n, last)
			}
			if last = n; !bytes.Equal(g.Value, want[n]) {
				s.Fatalf("%s: record %d is %q, produced was %q", part, n, g.Value, want[n])
			}
		}
	}
}

func (s *suite) sameTwice() {
	p, _ := s.place(300)
	src, other := s.open(p, nil), s.open(p, nil)
	for _, one := range s.pieces(src) {
		first := s.readWhole(src, one)
		s.equal(s.readWhole(src, one), first, true, "read again")
		s.equal(s.readWhole(other, one), first, true, "read by another process that has only the locator")
		for range s.tries(20) {
			r := s.randomRange(one)
			s.equal(s.read(src, one, r, start(r)), s.read(src, one, r, start(r)), true, fmt.Sprint("read again ", r))
		}
	}
}

func (s *suite) randomRange(p piece) sources.Range {
	a, b := s.offsetIn(p), s.offsetIn(p)
	return p.cut(min(a, b), max(a, b))
}

func (s *suite) offsetIn(p piece) int64 {
	return p.seg.Start + s.rng.Int64N(p.seg.End-p.seg.Start+1)
}

func (s *suite) splits() {
	p, _ := s.place(400)
	src := s.open(p, nil)
	pieces := s.pieces(src)
	whole := make([][]Got, len(pieces))
	for i, one := range pieces {
		whole[i] = s.readWhole(src, one)
	}
	for range s.tries(200) {
		i := s.rng.IntN(len(pieces))
		one := pieces[i]
		cuts := []int64{one.seg.Start, one.seg.End}
		for range s.rng.IntN(12) {
			cuts = append(cuts, s.offsetIn(one))
		}
		slices.Sort(cuts)
		var got []Got
		for k := 1; k < len(cuts); k++ {
			r := one.cut(cuts[k-1], cuts[k])
			got = append(got, s.read(src, one, r, start(r))...)
		}
		s.equal(got, whole[i], false, fmt.Sprintf("%s split at %v", one.seg.Name, cuts))
	}
}

func (s *suite) borders() {
	p, _ := s.place(200)
	src := s.open(p, nil)
	for _, one := range s.pieces(src) {
		whole := s.readWhole(src, one)
		for range s.tries(30) {
			if len(whole) == 0 {
				break
			}
			at := whole[s.rng.IntN(len(whole))].Position.Offset
			for delta := int64(-2); delta <= 2; delta++ {
				cut := min(max(at+delta, one.seg.Start), one.seg.End)
				left, right := one.cut(one.seg.Start, cut), one.cut(cut, one.seg.End)
				s.equal(s.read(src, one, left, start(left)), below(whole, cut), false, fmt.Sprint("left of ", cut))
				s.equal(s.read(src, one, right, start(right)), whole[len(below(whole, cut)):], true, fmt.Sprint("right of ", cut))
			}
		}
	}
}

// below are the records that begin below an offset.
func below(all []Got, offset int64) []Got {
	n := slices.IndexFunc(all, func(g Got) bool { return g.Position.Offset >= offset })
	if n < 0 {
		return all
	}
	return all[:n]
}

func (s *suite) from() {
	p, _ := s.place(200)
	src := s.open(p, nil)
	for _, one := range s.pieces(src) {
		for range s.tries(30) {
			r := s.randomRange(one)
			want := s.read(src, one, r, start(r))
			from := sources.Position{Segment: one.seg.ID, Offset: r.Start + s.rng.Int64N(r.End-r.Start+1)}
			s.equal(s.read(src, one, r, from), want[len(below(want, from.Offset)):], true, fmt.Sprintf("%v from %d", r, from.Offset))
		}
	}
}

func (s *suite) empty() {
	p, _ := s.place(50)
	src := s.open(p, nil)
	for _, one := range s.pieces(src) {
		for range 20 {
			at := s.offsetIn(one)
			r := one.cut(at, at)
			if got := s.read(src, one, r, start(r)); len(got) > 0 {
				s.Fatalf("[%d, %d) holds %d records", at, at, len(got))
			}
		}
	}
}

func (s *suite) acks() {
	p, _ := s.place(300)
	src := s.open(p, nil)
	for _, one := range s.pieces(src) {
		for range s.tries(20) {
			s.acksOf(src, one, s.randomRange(one))
		}
		s.acksOf(src, one, one.whole())
	}
}

func (s *suite) acksOf(src sources.Source, one piece, r sources.Range) {
	s.Helper()
	if err := again(s.Context(), func() error { return s.acksOnce(src, one, r) }); err != io.EOF {
		s.Fatal(err)
	}
}

// acksOnce returns the error with which the range has ended.
func (s *suite) acksOnce(src sources.Source, one piece, r sources.Range) error {
	s.Helper()
	c, err := src.Open(s.Context(), r, start(r), one.seg.Locator)
	if err != nil {
		return err
	}
	defer c.Close()
	var b sources.Batch
	end, any := r.Start, false
	for {
		if err = c.Next(s.Context(), &b); err != nil {
			break
		}
		for i := range b.Len() {
			rec := b.Rec(i)
			switch {
			case rec.Offset < end || rec.Offset < r.Start || rec.Offset >= r.End:
				s.Fatalf("a record at %d of %v, where %d was acked before", rec.Offset, r, end)
			case any && s.h.Contiguous && rec.Offset != end:
				s.Fatalf("the record before %d says that the next begins at %d", rec.Offset, end)
			case rec.Next < rec.Offset || rec.Next > r.End:
				s.Fatalf("the record at %d of %v says that the next begins at %d", rec.Offset, r, rec.Next)
			case len(b.Columns) > 0 && rec.Time != 0:
				s.Fatalf("the record at %d of %v is a row of columns and has a time", rec.Offset, r)
			case i == b.Len()-1 && b.End < rec.Next || b.End > r.End:
				s.Fatalf("a batch of %v ends at %d, its last record at %d", r, b.End, rec.Next)
			}
			end, any = rec.Next, true
		}
		end = b.End
	}
	if err == io.EOF && any && s.h.Contiguous && end != r.End {
		s.Fatalf("the last record of %v acks up to %d", r, end)
	}
	return err
}
