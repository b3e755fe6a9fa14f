package shardsvc

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/oracle"
	"pgregory.net/rapid"
)

// Retention in the simulation: sources lose the beginnings of segments while these are
// read. The master's polls see it, or readers meet the loss.

// excluded tells the oracle what a committed Step has excluded.
func (s *sim) excluded(reports []Report) {
	goesBack := s.model != Private && slices.ContainsFunc(reports, func(r Report) bool { return r.Kind == ReportRestored })
	for _, r := range reports {
		if r.Kind == ReportReadmitted {
			if !goesBack {
				s.t.Fatalf("%s, but no rank goes back to a cut", r.text())
			}
			s.fail(s.book.Readmit(oracle.Range{Partition: s.src(r.Partition), Pass: r.Pass, Segment: r.Segment, Start: r.Start, End: r.End}))
		}
		if r.Kind != ReportExcluded {
			continue
		}
		x := oracle.Range{Partition: s.src(r.Partition), Pass: r.Pass, Segment: r.Segment, Start: r.Start, End: r.End}
		s.fail(s.book.Exclude(x, goesBack))
		if goesBack {
			continue // all ranks lose their leases; the revokes follow this report
		}
		for _, t := range s.trainers {
			for _, l := range t.leases {
				for _, y := range s.ranges(l, l.prefix, l.end) {
					if s.model == Shared && y.Partition == x.Partition && y.Pass == x.Pass && y.Segment == x.Segment && y.Start < x.End && x.Start < y.End {
						s.t.Fatalf("%v was excluded while rank %d holds %v", x, t.rank, y)
					}
				}
			}
		}
	}
}

func (s *sim) someSegment() (key [2]int64, ok bool) {
	if len(s.sizes) == 0 {
		return key, false
	}
	return [2]int64{int64(s.src(rapid.Uint32Range(1, 2).Draw(s.t, "part"))), rapid.Int64Range(0, s.segments-1).Draw(s.t, "segment")}, true
}

// someRetention: the source deletes the beginning of a segment.
func (s *sim) someRetention() {
	key, ok := s.someSegment()
	if !ok {
		return
	}
	b := s.sizes[key]
	if s.live {
		b[1] = s.heads[uint32(key[0])] // the core may not know this head yet
	}
	from := max(b[0], s.lost[key])
	to := min(b[1], from+rapid.Int64Range(0, 25).Draw(s.t, "lost"))
	if from < to {
		s.lost[key] = to
		s.fail(s.book.Lose(oracle.Range{Partition: uint32(key[0]), Segment: key[1], Start: from, End: to}))
	}
}

// someLook: the master asks the source where a segment begins.
func (s *sim) someLook() {
	if key, ok := s.someSegment(); ok {
		part := uint32(key[0])
		if s.opt.VirtualRanks > 0 {
			part = rapid.Uint32Range(1, 2).Draw(s.t, "of")
		}
		s.step(&Truncated{Partition: part, Segment: key[1], Start: s.sizes[key][0], End: s.lost[key], Reason: "seen", When: 5},
			!s.calm && rapid.IntRange(0, 20).Draw(s.t, "crash") == 20)
	}
}

// someReadsOn: an agent reads on in a lease until it meets a loss.
func (s *sim) someReadsOn() {
	t, l := s.someLease()
	if l == nil || t.agent == nil || t.agent.session == 0 {
		return
	}
	s.readOn(t, l)
}

// readOn delivers up to the first unit that the source does not have. It returns false if
// the source has all units.
func (s *sim) readOn(t *simTrainer, l *simLease) bool {
	for _, p := range l.pieces {
		key := [2]int64{int64(s.src(l.part)), p.Segment}
		at := max(p.OrderStart, l.frontier)
		begin := p.Start + at - p.OrderStart
		end := min(p.End, p.Start+min(l.end, s.there(l))-p.OrderStart)
		if begin >= end || begin >= s.lost[key] {
			continue
		}
		token := l.token
		l.frontier, l.end = at, at
		t.leases = slices.DeleteFunc(t.leases, func(l *simLease) bool { return l.prefix >= l.end })
		s.send(t.agent, &Message{Failures: []ReadFailure{{Token: token, At: at, Permanent: true, Kind: "truncated", Message: "met", When: 7,
			Lost: &LostRange{p.Segment, begin, min(end, s.lost[key])}}}})
		return true
	}
	return false
}

// excludedAgain checks that the core's list is the oracle's set, and that a restart keeps
// it.
func (s *sim) excludedAgain() {
	for range 2 {
		all, total := s.w.core.Excluded(1, 0, 1<<30)
		units := int64(0)
		for i, e := range all {
			x := oracle.Range{Partition: s.src(e.Partition), Pass: e.Pass, Segment: e.Segment, Start: e.Start, End: e.End}
			units += e.End - e.Start
			kind := e.Kind == "truncated" && e.Column == "" || e.Kind == "bad_record" && e.Column == "c"
			if !s.book.IsExcluded(x) || e.Reason == "" || !kind || e.When == 0 {
				s.t.Fatalf("%+v is listed as excluded", e)
			}
			if some, n := s.w.core.Excluded(1, i, 1); n != total || len(some) != 1 || some[0] != e {
				s.t.Fatalf("page %d of the excluded ranges is %+v of %d, not %+v", i, some, n, e)
			}
		}
		s.lettersAgain(all)
		if n := s.book.Excluded(); units != n || total != len(all) {
			s.t.Fatalf("%d units are listed as excluded (%d ranges of %d), %d were", units, len(all), total, n)
		}
		if n := s.w.core.Datasets()[0].Counts.Excluded; n != units {
			s.t.Fatalf("%d units are counted as excluded, %d listed", n, units)
		}
		s.crash()
	}
}
