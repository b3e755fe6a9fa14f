package shardsvc

import (
	"maps"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/shardsvc/oracle"
	"pgregory.net/rapid"
)

// simDeletions asks what a rewind would miss if the source had deleted the beginnings of
// some segments.
type simDeletions struct {
	s   *sim
	all []Deletion
	had oracle.Set // before the rewind: records in the models and in the hands of the ranks that go back
}

func (s *sim) someDeletions(body *cut.Cut) *simDeletions {
	d := &simDeletions{s: s, had: oracle.Set{}}
	for n := range uint32(2) {
		if s.opt.VirtualRanks > 0 && n > 0 {
			break
		}
		for id := range s.segments {
			b := s.sizes[[2]int64{int64(s.src(n + 1)), id}]
			if s.live {
				b[1] = s.heads[n+1]
			}
			low := rapid.Int64Range(b[0], b[1]).Draw(s.t, "deleted below")
			source := s.identity(n)
			if s.opt.VirtualRanks > 0 {
				source = "p"
			}
			d.all = append(d.all, Deletion{Dataset: 1, Source: source, Segment: id, Low: low})
		}
	}
	if s.model == Private {
		d.hold(body)
	}
	return d
}

// hold remembers the records of the private ranks that go back.
func (d *simDeletions) hold(body *cut.Cut) {
	s := d.s
	goes := func(rank uint32) bool { return body == nil || body.Rank == cut.Rank(rank) }
	for _, r := range s.w.core.ranks {
		if goes(r.no) {
			maps.Copy(d.had, s.book.Members(int64(r.no), 1<<62))
		}
	}
	for _, p := range s.w.core.parts {
		if p == nil {
			continue
		}
		for _, ps := range p.passes {
			for l := ps.leases; l != nil; l = l.pnext {
				if !goes(l.w.account.no) {
					continue
				}
				if p.Growing() { // it may end ahead of head
					at := ps.StartPlace(l.prefix)
					d.had.Add(oracle.Range{Partition: s.src(p.no), Pass: ps.n, Segment: at.Segment, Start: at.Offset, End: at.Offset + l.end - l.prefix})
					continue
				}
				ps.EachPiece(l.prefix, l.end, func(_ int64, g *line.Segment, start, end int64) {
					d.had.Add(oracle.Range{Partition: s.src(p.no), Pass: ps.n, Segment: g.ID, Start: start, End: end})
				})
			}
		}
	}
}

// missed is called after the rewind. It compares the records that the dry run called gone with
// the records that are deleted and not settled.
func (d *simDeletions) missed(g Gone) {
	s, want, got := d.s, oracle.Set{}, oracle.Set{}
	for _, x := range d.all {
		part := s.partOf(x.Source)
		for pass := range uint32(s.opt.Passes) {
			start := s.sizes[[2]int64{int64(part), x.Segment}][0]
			open := s.book.Open(oracle.Range{Partition: part, Pass: pass, Segment: x.Segment, Start: start, End: x.Low})
			if s.model == Private {
				open = open.And(d.had)
			}
			maps.Copy(want, open)
		}
	}
	for _, x := range g.Ranges {
		for pass := range x.Passes {
			got.Add(oracle.Range{Partition: s.partOf(x.Source), Pass: x.Pass + pass, Segment: x.Segment, Start: x.Start, End: x.End})
		}
	}
	if g.Units != int64(len(want)) {
		s.t.Fatalf("the source has deleted %d units that the rewind needs, but its dry run said %d", len(want), g.Units)
	}
	if g.More == 0 {
		s.fail(got.Same(want))
	}
	if g.AtLeast || g.Stops {
		s.t.Fatalf("the dry run says %+v; the world is small enough to count every unit, and the dataset goes on after a loss, so neither AtLeast nor Stops may be set", g)
	}
}

func (s *sim) partOf(source string) uint32 {
	if source == "p2" {
		return 2
	}
	return 1
}
