package gone

import (
	"cmp"
	"slices"

	"github.com/headrace/headrace/shardsvc/line"
)

// Deletion says which part of a segment a source has deleted: everything below Low.
type Deletion struct {
	Dataset uint32
	Source  string // the partition, as the source calls it
	Segment int64
	Low     int64
	All     bool // the whole segment is gone, or another one has its place
}

// Input says what is gone: records that are neither in the cut nor excluded, so that they
// would be pending.
type Input struct {
	Ranges  []Range // the first of them, in order of dataset, partition, pass and place
	More    int     // ranges that are not among them
	Units   int64   // in all of them, passes added up
	AtLeast bool    // there were too many places to look at, and there may be more
	Stops   bool    // at least one of the ranges stops its dataset
}

// Range is one range at the source.
type Range struct {
	Dataset      uint32
	Name         string // of the dataset
	Label        string // what people call the partition
	Source       string // what the source calls it
	Pass, Passes uint32 // in so many passes from Pass on
	Segment      int64
	Start, End   int64
	Stops        bool // the dataset stops there; else the range becomes excluded
	All          bool // nothing of its segment is there
}

const (
	maxListed = 64      // ranges that are told one by one
	maxLooks  = 1 << 18 // so many blocks and ranges are looked at, because the core's only goroutine does it
)

// Partition is a partition as it will be after going back.
type Partition struct {
	*line.Table
	Dataset uint32
	Name    string // of the dataset
	Label   string // what people call it
	Source  string // what the source calls it. Several virtual ranks may read it
	Virtual bool   // it is that of a virtual rank
	Passes  uint32 // how many the dataset reads
	Begun   uint32 // how many of them have begun, or will have
	Unread  bool   // ranges of passes that nobody has begun are reported for this partition
	Shuffle bool
	GoesOn  bool // the dataset goes on after a loss
	Pass    func(n uint32) Pass
}

// Pass is a pass of a partition.
type Pass struct {
	line.Line
	Cut      *line.Set // what the cut has of it
	Excluded line.Set
	Own      *line.Map // what the ranks that go back have of it; nil: all go back together
}

// of names one partition of a source.
type of struct {
	dataset uint32
	source  string
}

func (p *Partition) key() of { return of{p.Dataset, p.Source} }

// Search looks for what is gone in the partitions of a job.
func Search(all []Partition, deleted []Deletion) Input {
	s := search{deleted: map[of][]Deletion{}, looks: maxLooks}
	for _, d := range deleted {
		key := of{d.Dataset, d.Source}
		s.deleted[key] = append(s.deleted[key], d)
	}
	begun := map[of]uint32{} // virtual ranks are reported together
	for i := range all {
		p := &all[i]
		begun[p.key()] = max(begun[p.key()], p.Begun)
	}
	for i := range all {
		s.partition(&all[i], begun[all[i].key()])
	}
	return s.told()
}

type search struct {
	deleted map[of][]Deletion
	looks   int
	found   []Range
	atLeast bool
}

func (s *search) partition(p *Partition, begun uint32) {
	for _, d := range s.deleted[p.key()] {
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
			s.pass(p, n, g, end, d.All)
		}
		if p.Passes > begun {
			s.unread(p, g, begun, p.Passes-begun, end, d.All)
		}
	}
}

// unread adds a range of passes that nobody has begun to read.
func (s *search) unread(p *Partition, g *line.Segment, pass, passes uint32, end int64, all bool) {
	if p.Unread {
		s.add(p, g, pass, passes, g.Start, end, all)
	}
}

// pass looks at [g.Start, end) of a segment in one pass.
func (s *search) pass(p *Partition, n uint32, g *line.Segment, end int64, all bool) {
	ps := p.Pass(n)
	if ps.Order == nil && p.Shuffle { // not all of it is listed, so nobody has read any of it
		s.unread(p, g, n, 1, end, all)
		return
	}
	look := func(from, to, shift int64) { // of the line; shift makes it the source's
		ps.need(from, to, func(start, end int64) {
			ps.Excluded.Gaps(start, end, func(start, end int64) {
				if s.looked() {
					s.add(p, g, n, 1, start+shift, end+shift, all)
				}
			})
		})
	}
	ps.EachOfSegment(g, end, func(from, to, shift int64) bool {
		if ps.Order != nil && !s.looked() {
			return false
		}
		look(from, to, shift)
		return true
	})
}

// need calls each for every part of [from, to) that will be pending: it is not in the cut, and
// the ranks that go back have it.
func (ps *Pass) need(from, to int64, each func(start, end int64)) {
	if ps.Own == nil {
		ps.Cut.Gaps(from, to, each)
		return
	}
	i, j := ps.Own.Overlap(from, to)
	for _, x := range (*ps.Own)[i:j] {
		ps.Cut.Gaps(max(from, x.Start), min(to, x.End), each)
	}
}

// looked counts one more look. It returns false once there were too many.
func (s *search) looked() bool {
	if s.looks == 0 {
		s.atLeast = true
		return false
	}
	s.looks--
	return true
}

func (s *search) add(p *Partition, g *line.Segment, pass, passes uint32, start, end int64, all bool) {
	label := p.Label
	if p.Virtual { // several of them share the segment
		label = g.Name
	}
	x := Range{p.Dataset, p.Name, label, p.Source, pass, passes, g.ID, start, end, all || !p.GoesOn, all}
	if n := len(s.found); n > 0 && s.found[n-1].joins(&x) {
		s.found[n-1].End = end
		return
	}
	s.found = append(s.found, x)
}

// told sorts what was found and joins neighbours.
func (s *search) told() (g Input) {
	slices.SortFunc(s.found, func(a, b Range) int {
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
	g.Ranges = all[:min(len(all), maxListed)]
	g.More = len(all) - len(g.Ranges)
	return g
}

// joins says whether y begins where x ends.
func (x *Range) joins(y *Range) bool {
	return x.Dataset == y.Dataset && x.Source == y.Source && x.Pass == y.Pass && x.Passes == y.Passes && x.Segment == y.Segment && x.End == y.Start
}
