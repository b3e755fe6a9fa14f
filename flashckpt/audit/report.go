package audit

import (
	"iter"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// Range is records of the source: those that begin in [Start, End) of a segment.
type Range struct {
	Segment int64  `json:"segment"`
	Name    string `json:"name"` // of the segment: a file, a topic and partition
	Start   int64  `json:"start"`
	End     int64  `json:"end"`
}

// Pass says which records of one pass of a partition are in the model.
type Pass struct {
	Pass  uint32 `json:"pass"`
	Whole bool   `json:"whole"` // all of the pass is settled
	Units int64  `json:"units"` // in the model
	// Records in Ranges; nil: not known, because the cut counts all passes that are done together.
	Records  *cut.Tally `json:"-"`
	Ranges   []Range    `json:"ranges"`
	Excluded []Excluded `json:"excluded,omitempty"`
	Dropped  []Dropped  `json:"dropped,omitempty"`
	// Vague counts units in Ranges that were dropped by the user's choice; the cut does
	// not say which they are.
	Vague int64 `json:"vague,omitempty"`
}

// Excluded is a range that no model has, in the source's own segments.
type Excluded struct {
	Ranges []Range `json:"ranges"`
	Units  int64   `json:"units"`
	Kind   string  `json:"kind"`
	Reason string  `json:"reason"`
	When   int64   `json:"when"` // ms since 1970
}

// Dropped is a range that no full round has (tail="drop"), in the source's own segments. It is
// settled and not in the model.
type Dropped struct {
	Ranges []Range `json:"ranges"`
	Units  int64   `json:"units"`
	Step   int64   `json:"step"` // of the last round
}

// settled is all that is settled of a pass, in order space.
func settled(p *cut.Partition, pass uint32, s *space) cut.Set {
	if pass < p.Done {
		return s.whole()
	}
	for i := range p.Passes {
		if ps := &p.Passes[i]; ps.Pass == pass {
			return cut.NewSet(slices.Concat(s.below(ps.Low), ps.Ranges.Pieces(p.Segments, cut.Acked, cut.Excluded, cut.Dropped)))
		}
	}
	return nil
}

// left returns what is surely not in the model: the excluded and the dropped ranges of the pass.
func left(p *cut.Partition, pass uint32) cut.Set {
	var out []cut.Piece
	for i := range p.Passes {
		if ps := &p.Passes[i]; ps.Pass == pass {
			out = ps.Ranges.Pieces(p.Segments, cut.Excluded, cut.Dropped)
		}
	}
	for i := range p.Excluded {
		if p.Excluded[i].Pass == pass {
			out = append(out, p.Excluded[i].Piece)
		}
	}
	for i := range p.Dropped {
		if p.Dropped[i].Pass == pass {
			out = append(out, p.Dropped[i].Piece)
		}
	}
	return cut.NewSet(out)
}

// vague counts the dropped units whose place the cut does not say.
func vague(p *cut.Partition, pass uint32) int64 {
	if pass < p.Done {
		return max(0, p.DoneUnits.Dropped-listed(p, func(n uint32) bool { return n < p.Done })) // of all passes done
	}
	if n := listed(p, func(n uint32) bool { return n == pass }); n > 0 {
		for i := range p.Passes {
			if ps := &p.Passes[i]; ps.Pass == pass {
				return max(0, ps.Units.Dropped-n)
			}
		}
	}
	for i := range p.Passes {
		if ps := &p.Passes[i]; ps.Pass == pass {
			return max(0, ps.Units.Dropped-cut.NewSet(ps.Ranges.Pieces(p.Segments, cut.Dropped)).Units())
		}
	}
	return 0
}

// listed counts the units that the cut lists as dropped, in some passes.
func listed(p *cut.Partition, in func(pass uint32) bool) (n int64) {
	for i := range p.Dropped {
		if in(p.Dropped[i].Pass) {
			n += p.Dropped[i].Units
		}
	}
	return n
}

func members(p *cut.Partition, pass uint32, s *space) cut.Set {
	return settled(p, pass, s).Minus(left(p, pass))
}

// Passes says for each pass of a partition with something settled which of its records are in the
// model.
func Passes(d *cut.Dataset, p *cut.Partition) iter.Seq[Pass] {
	return func(yield func(Pass) bool) {
		for n := range p.Done {
			if !yield(passOf(d, p, n)) {
				return
			}
		}
		for i := range p.Passes {
			if !yield(passOf(d, p, p.Passes[i].Pass)) {
				return
			}
		}
	}
}

func passOf(d *cut.Dataset, p *cut.Partition, n uint32) Pass {
	s := newSpace(d, p, n)
	all := settled(p, n, s)
	source := s.source(all.Minus(left(p, n)))
	missing := s.source(s.whole().Minus(all)).Units()
	in := func(offsets int64) int64 { return sources.InUnits(d.UnitOf(p), offsets) }
	out := Pass{Pass: n, Whole: p.Complete && missing == 0, Units: in(source.Units()), Records: recordsOf(p, n), Ranges: named(s, source), Vague: in(vague(p, n))}
	for i := range p.Excluded {
		if e := &p.Excluded[i]; e.Pass == n {
			out.Excluded = append(out.Excluded, Excluded{named(s, s.source(cut.Set{e.Piece})), in(e.Units), e.Kind, e.Reason, e.When})
		}
	}
	for i := range p.Dropped {
		if x := &p.Dropped[i]; x.Pass == n {
			out.Dropped = append(out.Dropped, Dropped{named(s, s.source(cut.Set{x.Piece})), in(x.Units), x.Step})
		}
	}
	return out
}

func named(s *space, source cut.Set) []Range {
	out := make([]Range, 0, len(source))
	for _, r := range source {
		out = append(out, Range{r.Segment, s.name(r.Segment), r.Start, r.End})
	}
	return out
}
