package shardsvc

import (
	"cmp"
	"math"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// Deletion says which part of a segment a source has deleted: everything below Low.
type Deletion struct {
	Dataset DatasetID
	Source  string // the partition, as the source calls it
	Segment int64
	Low     int64
	All     bool // nothing of the segment is there, or another segment is there
}

// Gone is the input that going back to a cut needs and the source has deleted. It is
// neither in the cut nor excluded, so it would be pending. Example: the cut has [0, 500),
// the source has deleted everything below 800: [500, 800) is gone.
type Gone struct {
	Ranges  []GoneInfo // the first of them, in order of dataset, partition, pass and place
	More    int        // ranges that are not among them
	Units   int64      // in all of them, passes added up
	AtLeast bool       // there were too many places to look at, and there may be more
	Stops   bool       // at least one of the ranges stops its dataset
}

// GoneInfo is one range at the source.
type GoneInfo struct {
	Dataset      DatasetID
	Name         string // of the dataset
	Label        string // what people call the partition
	Source       string // what the source calls it
	Pass, Passes uint32 // in so many passes from Pass on
	Segment      int64
	Start, End   int64
	Stops        bool // the dataset stops there; else the range becomes excluded
	All          bool // of a segment of which nothing is there
}

const (
	goneListed = 64      // ranges that are told one by one
	goneLooks  = 1 << 18 // blocks and ranges that are looked at, by the only goroutine there is
)

// gone lists the input that going back to a cut needs and the source has deleted. The cut
// lies at want; if this master does not keep it, fit says where it lies.
func (lg *ledger) gone(shares []share, want *lines, fit []fitted, deleted []Deletion) Gone {
	if len(deleted) == 0 {
		return Gone{}
	}
	s := goneSearch{lg: lg, shares: shares, deleted: map[ofSource][]Deletion{}, looks: goneLooks}
	for _, d := range deleted {
		key := ofSource{d.Dataset, d.Source}
		s.deleted[key] = append(s.deleted[key], d)
	}
	var all []aim
	there := map[*partition]bool{nil: true} // of the cut's, where that is not the job's own
	for i := range fit {
		f := &fit[i]
		there[f.p], there[f.old] = true, true
		now := f.p
		if f.begins != nil { // nobody has read from it
			now = nil
		}
		all = append(all, aim{f.with, now, f.sets})
	}
	for _, p := range lg.parts {
		if there[p] {
			continue
		}
		var sets []line.Set
		if want != nil {
			sets = want.parts[p.no]
		}
		all = append(all, aim{p, p, sets})
	}
	begun := map[ofSource]uint32{} // virtual ranks are told together
	for _, a := range all {
		begun[a.key()] = max(begun[a.key()], a.begun())
	}
	for _, a := range all {
		s.partition(a, begun[a.key()])
	}
	return s.told()
}

// aim is a partition as it will be after going back. now is the job's partition of today;
// nil: there is none, or it begins elsewhere. sets holds the part of each pass that is in
// the cut.
type aim struct {
	p, now *partition
	sets   []line.Set
}

// ofSource names one partition of a source. Several virtual ranks may read it.
type ofSource struct {
	dataset DatasetID
	source  string
}

func (a *aim) key() ofSource { return ofSource{a.p.ds.id, a.p.source} }

// begun counts the passes in which something was read, or will be.
func (a *aim) begun() uint32 {
	n := max(a.p.begun(), uint32(len(a.sets)))
	if a.now != nil {
		n = max(n, a.now.begun())
	}
	return n
}

type goneSearch struct {
	lg      *ledger
	shares  []share // of the ranks that go back; none: all go back together
	deleted map[ofSource][]Deletion
	looks   int
	found   []GoneInfo
	atLeast bool
}

func (s *goneSearch) partition(a aim, begun uint32) {
	p := a.p
	for _, d := range s.deleted[a.key()] {
		at := p.SegByID(d.Segment)
		if at < 0 {
			continue
		}
		g := &p.Segs[at]
		end := g.End
		if !d.All {
			if end = min(d.Low, g.End); p.Growing() && at == len(p.Segs)-1 {
				end = d.Low
			}
		}
		if end <= g.Start {
			continue
		}
		for n := range begun {
			set := &line.Set{}
			if int(n) < len(a.sets) {
				set = &a.sets[n]
			}
			s.pass(p.line(n), a.now, set, g, end, d.All)
		}
		if rest := uint32(p.ds.opt.Passes) - begun; rest > 0 {
			s.unread(p, g, begun, rest, end, d.All)
		}
	}
}

// unread adds a range of passes that nobody has begun to read.
func (s *goneSearch) unread(p *partition, g *line.Segment, pass, passes uint32, end int64, all bool) {
	if !s.lg.perRank && p.counts1() {
		s.add(p, g, pass, passes, g.Start, end, all)
	}
}

// pass looks at [g.start, end) of a segment in one pass.
func (s *goneSearch) pass(ps *pass, now *partition, set *line.Set, g *line.Segment, end int64, all bool) {
	need := func(from, to int64, each func(start, end int64)) { set.Gaps(from, to, each) }
	if s.lg.perRank {
		own := s.ofRanks(now, ps.n)
		need = func(from, to int64, each func(start, end int64)) {
			i, j := own.Overlap(from, to)
			for _, x := range own[i:j] {
				set.Gaps(max(from, x.Start), min(to, x.End), each)
			}
		}
	}
	excluded := line.SetOf(ps.excludedOnLine())
	look := func(from, to, shift int64) { // of the line; shift makes it the source's
		need(from, to, func(start, end int64) {
			excluded.Gaps(start, end, func(start, end int64) {
				if s.looked() {
					s.add(ps.p, g, ps.n, 1, start+shift, end+shift, all)
				}
			})
		})
	}
	if ps.Order == nil && ps.p.ds.opt.Shuffle { // not all of it is listed, so nobody has read any of it
		s.unread(ps.p, g, ps.n, 1, end, all)
		return
	}
	ps.EachOfSegment(g, end, func(from, to, shift int64) bool {
		if ps.Order != nil && !s.looked() {
			return false
		}
		look(from, to, shift)
		return true
	})
}

// ofRanks is the part of a pass that the ranks have in their models or hold.
func (s *goneSearch) ofRanks(p *partition, n uint32) (m line.Map) {
	if p == nil {
		return nil
	}
	ps := p.line(n)
	for _, r := range s.shares {
		set, _ := ps.ofRank(r.account, math.MaxInt64, r.own.of(p, n), cut.Tally{})
		m.With(set.Spans(), line.Acked)
		for l := ps.leases; l != nil; l = l.pnext {
			if l.w.account == r.account {
				m.Set(l.prefix, l.end, line.Acked)
			}
		}
	}
	return m
}

// looked counts one more look. It is false once too many were made.
func (s *goneSearch) looked() bool {
	if s.looks == 0 {
		s.atLeast = true
		return false
	}
	s.looks--
	return true
}

func (s *goneSearch) add(p *partition, g *line.Segment, pass, passes uint32, start, end int64, all bool) {
	label := p.label()
	if p.virtual > 0 { // several of them share the segment
		label = g.Name
	}
	x := GoneInfo{p.ds.id, p.ds.name, label, p.source, pass, passes, g.ID, start, end, all || !p.ds.opt.GoOnAfterLoss, all}
	if n := len(s.found); n > 0 && s.found[n-1].joins(&x) {
		s.found[n-1].End = end
		return
	}
	s.found = append(s.found, x)
}

// told sorts what was found and joins neighbours.
func (s *goneSearch) told() (g Gone) {
	slices.SortFunc(s.found, func(a, b GoneInfo) int {
		return cmp.Or(cmp.Compare(a.Dataset, b.Dataset), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Pass, b.Pass),
			cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Start, b.Start))
	})
	g.AtLeast = s.atLeast
	at := -1 // in s.found
	for i := range s.found {
		x := &s.found[i]
		g.Units += (x.End - x.Start) * int64(x.Passes)
		g.Stops = g.Stops || x.Stops
		if at >= 0 && s.found[at].joins(x) {
			s.found[at].End = x.End
			continue
		}
		at++
		s.found[at] = *x
	}
	all := s.found[:at+1]
	g.Ranges = all[:min(len(all), goneListed)]
	g.More = len(all) - len(g.Ranges)
	return g
}

// joins says whether y begins where x ends.
func (x *GoneInfo) joins(y *GoneInfo) bool {
	return x.Dataset == y.Dataset && x.Source == y.Source && x.Pass == y.Pass && x.Passes == y.Passes && x.Segment == y.Segment && x.End == y.Start
}
