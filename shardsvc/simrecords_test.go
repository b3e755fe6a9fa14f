package shardsvc

import (
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/oracle"
	"pgregory.net/rapid"
)

// The records of the simulation: the oracle knows for each unit whether a record begins
// there, and its time. Agents tell the core with most acks, and the core adds them up.

// ackOf returns an ack with the number of its records. Some agents do not count records, and some
// are wrong about where their last ack ended.
func (s *sim) ackOf(l *simLease, prefix, step int64) Ack {
	k := Ack{Token: l.token, Prefix: prefix, Step: step, From: l.said}
	how := 0
	if !s.calm {
		how = rapid.IntRange(0, 15).Draw(s.t, "tells")
	}
	if k.Told = how != 15; how == 14 {
		k.From--
	}
	n := oracle.CountOf(s.ranges(l, k.From, prefix))
	k.Rows, k.Oldest, k.Newest = n.Rows, n.Oldest, n.Newest
	l.said = max(l.said, prefix)
	return k
}

// sameRecords checks that the core has added up the records that there are.
func (s *sim) sameRecords(got cut.Tally) {
	if s.vague { // a cut counts records that are excluded here
		return
	}
	var all oracle.Count
	acked := s.book.Acked()
	for _, n := range acked.Count(s.book.Untold(acked)) {
		all = merge(all, n)
	}
	if got.Rows != all.Rows || got.Untold != all.Untold || all.Newest != 0 && (got.Oldest > all.Oldest || got.Newest < all.Newest) {
		s.t.Fatalf("the core has acked %+v, the oracle %+v", got, all)
	}
	if s.model != Private && (got.Oldest != all.Oldest || got.Newest != all.Newest) {
		s.t.Fatalf("the core has acked %+v, the oracle %+v", got, all)
	}
}

func merge(a, b oracle.Count) oracle.Count {
	t := cut.Tally(a)
	t.Add(cut.Tally(b))
	return oracle.Count(t)
}

// counts checks that a cut has the number of its records, for each partition.
func (s *sim) counts(k *simCut, body *cut.Cut) {
	if s.vague {
		return
	}
	got := map[uint32]cut.Tally{}
	for _, d := range body.Datasets {
		for i := range d.Partitions {
			p := &d.Partitions[i]
			n := got[s.src(p.Number)]
			n.Add(p.Records())
			got[s.src(p.Number)] = n
		}
	}
	for part, want := range s.book.WithoutExcluded(k.set).Count(s.untold[k.id]) {
		if got[part] != cut.Tally(want) {
			s.t.Fatalf("cut %d of rank %d at step %d: partition %d: the core has %+v, the oracle %+v", k.id, k.rank, k.step, part, got[part], want)
		}
		delete(got, part)
	}
	for part, n := range got {
		if n != (cut.Tally{}) {
			s.t.Fatalf("cut %d of rank %d at step %d: partition %d: the core has %+v, the oracle nothing", k.id, k.rank, k.step, part, n)
		}
	}
}

// sameBack checks how many units and records are pending again. Nobody knows the number of
// records in two cases: the restored cut has units that were not settled before; or some
// units are untold (mixed), because a cut may have counted others of the same units.
func (s *sim) sameBack(r Report, n oracle.Back, more int64, mixed bool) {
	if n.Units != r.Units {
		s.t.Fatalf("%s; the oracle says that %d units are pending again", r.text(), n.Units)
	}
	if s.vague || mixed || more > 0 && r.Records.Untold > n.Untold {
		return
	}
	if want := (cut.Tally{Rows: n.Rows, Untold: n.Untold}); r.Records != want {
		s.t.Fatalf("%s: %+v records are pending again; the oracle says %+v", r.text(), r.Records, want)
	}
}
