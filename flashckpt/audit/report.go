package audit

import (
	"iter"
	"slices"

	"github.com/headrace/headrace/flashckpt/manifest"
)

// Range is records of the source: those that begin in [Start, End) of a segment.
type Range struct {
	Segment int64  `json:"segment"`
	Name    string `json:"name"` // of the segment: a file, a topic and partition
	Start   int64  `json:"start"`
	End     int64  `json:"end"`
}

// Pass is what is in the model of one reading of a partition.
type Pass struct {
	Pass  uint32 `json:"pass"`
	Whole bool   `json:"whole"` // all of the pass is settled
	Units int64  `json:"units"` // in the model
	// Records in it; nil: only those of all passes that are done are known together.
	Records  *manifest.Records `json:"-"`
	Ranges   []Range           `json:"ranges"`
	Excluded []Excluded        `json:"excluded,omitempty"`
	// Vague: so many units of what Ranges show were dropped by the user's choice;
	// the cut does not say which.
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

// settled is all that is settled of a pass, in order space.
func settled(p *manifest.Partition, pass uint32, s *space) set {
	if pass < p.Done {
		return s.whole()
	}
	for i := range p.Passes {
		if ps := &p.Passes[i]; ps.Pass == pass {
			return normal(slices.Concat(s.below(ps.Low), ps.Ranges.Acked, ps.Ranges.Excluded, ps.Ranges.Dropped))
		}
	}
	return nil
}

// left is what of it is surely not in the model: excluded, or dropped above the
// low mark.
func left(p *manifest.Partition, pass uint32) set {
	var out []manifest.Range
	for i := range p.Passes {
		if ps := &p.Passes[i]; ps.Pass == pass {
			out = slices.Concat(ps.Ranges.Excluded, ps.Ranges.Dropped)
		}
	}
	for i := range p.Excluded {
		if p.Excluded[i].Pass == pass {
			out = append(out, p.Excluded[i].Range)
		}
	}
	return normal(out)
}

// vague counts the units that were dropped where the cut does not say which.
func vague(p *manifest.Partition, pass uint32) int64 {
	if pass < p.Done {
		return p.DoneUnits.Dropped // of all passes done
	}
	for i := range p.Passes {
		if ps := &p.Passes[i]; ps.Pass == pass {
			return max(0, ps.Units.Dropped-set(ps.Ranges.Dropped).units())
		}
	}
	return 0
}

func members(p *manifest.Partition, pass uint32, s *space) set {
	return settled(p, pass, s).minus(left(p, pass))
}

// Passes are what is in the model of each pass of a partition that has something
// settled.
func Passes(d *manifest.Dataset, p *manifest.Partition) iter.Seq[Pass] {
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

func passOf(d *manifest.Dataset, p *manifest.Partition, n uint32) Pass {
	s := newSpace(d, p, n)
	all := settled(p, n, s)
	source := s.source(all.minus(left(p, n)))
	missing := s.source(s.whole().minus(all)).units()
	out := Pass{Pass: n, Whole: p.Complete && missing == 0, Units: source.units(), Records: recordsOf(p, n), Ranges: named(s, source), Vague: vague(p, n)}
	for i := range p.Excluded {
		if e := &p.Excluded[i]; e.Pass == n {
			out.Excluded = append(out.Excluded, Excluded{named(s, s.source(set{e.Range})), e.Units, e.Kind, e.Reason, e.When})
		}
	}
	return out
}

func named(s *space, source set) []Range {
	out := make([]Range, 0, len(source))
	for _, r := range source {
		out = append(out, Range{r.Segment(), s.name(r.Segment()), r.Start(), r.End()})
	}
	return out
}
