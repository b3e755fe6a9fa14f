package sim

import (
	"slices"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
)

// feed is the reader, cutter and sender of one stream, as in agent/feed: it reads leases in order, cuts
// batches of exactly the requested rows, asks hold before they leave, and starts again when leases
// change during that.
type feed struct {
	id        hold.Stream
	s         *seat
	dataset   uint32
	rows      int
	credit    int
	delivered uint32
	leases    []*reading
	state     pb.Standing_State
	busy      bool // cutting
	blocked   bool // waits for the session
	asked     bool // Hungry was said since the last lease
	ended     bool
	stopped   bool
	poked     bool
	looks     bool // it will look at a head soon
	waits     Time // since when there are rows that do not fill a batch
	since     Time // since when a batch must not leave
	stepped   uint32

	rounds  bool // its batches are rounds
	closing uint32
	beyond  bool       // there are rows beyond the last round
	newest  hold.Lease // the newest of leases
	said    ahead
}

// reading is a granted lease. All below `at` was delivered.
type reading struct {
	id      hold.Lease
	token   hold.Token
	grant   *pb.Grant
	at, end int64
	dry     bool
	seen    hold.HeadSeen
}

// batchInHand is a batch from its cut to its end.
type batchInHand struct {
	number  uint32
	recs    []int32
	spans   []hold.Span
	stepped bool
	step    int64
}

func (s *seat) newFeed(number, dataset uint32, rows int) *feed {
	f := &feed{id: hold.Stream{Worker: s.number, Number: number}, s: s, dataset: dataset, rows: rows, state: pb.Standing_WAIT}
	s.streams = append(s.streams, f)
	return f
}

func (f *feed) stop() bool {
	f.stopped = true
	return true
}

func (f *feed) poke() {
	if f.poked || f.stopped {
		return
	}
	f.poked = true
	f.s.a.after(0, func() {
		f.poked = false
		f.cut()
	})
}

func (f *feed) granted(g hold.Granted) {
	f.leases = append(f.leases, &reading{id: g.Lease, token: g.Token, grant: g.Grant, at: g.Grant.LeaseStart, end: g.Grant.LeaseEnd})
	f.state, f.asked, f.newest = g.Standing, false, g.Lease
	f.poke()
}

func (f *feed) find(id hold.Lease) *reading {
	for _, l := range f.leases {
		if l.id == id {
			return l
		}
	}
	return nil
}

func (f *feed) shrunk(e hold.LeaseEnd) {
	if l := f.find(e.Lease); l != nil && e.End < l.end {
		l.end = e.End
		if l.end < l.at && !f.beyond {
			f.s.a.w.fail("%s: lease %d ends at %d, delivered up to %d", f.s.a.name, l.id, e.End, l.at)
		}
	}
	f.poke()
}

func (f *feed) standing(s pb.Standing_State, reason string) {
	f.state = s
	switch s {
	case pb.Standing_END:
		if !f.ended && !f.rounds { // with rounds, all ranks decide the end together
			f.ended = true
			f.s.l.send(1, over{f.id.Number})
		}
	case pb.Standing_FAILED, pb.Standing_DELETED:
		f.s.l.send(1, fenced("the dataset failed: "+reason)) // this ends the stream with an error
	}
	f.poke()
}

func (f *feed) live() {
	if f.blocked {
		f.blocked = false
		f.poke()
	}
}

// work is a frame that is being made.
type work struct {
	sizes   []int32
	takes   []hold.Take
	batches []*batchInHand
	alone   bool // a single record, which may crash its trainer
}

// cut reads whole batches, up to a frame, if there is credit and a lease.
func (f *feed) cut() {
	defer f.tellAhead()
	if f.busy || f.blocked || f.stopped || f.credit == 0 || f.ended || f.beyond || !f.mayLeave(false) {
		return
	}
	a := f.s.a
	var wk work
	want := min(f.credit, a.w.of(1, 3))
	var b *batchInHand
	size := int32(0)
	var heads []uint32 // partitions whose reader waits at the head
	history := false   // some of the history is not in this frame
	for _, l := range f.inOrder() {
		if l.dry || slices.Contains(heads, l.grant.Partition) || history && f.waitsForHistory(l) {
			history = history || !l.dry && l.grant.Backfill
			continue
		}
		recs, tos, met := a.w.recordsOf(l.grant, l.at, l.end)
		open := met == nil && a.w.mayGrow(l.grant, l.end)
		history = history || l.grant.Backfill && (open || met != nil)
		if open {
			heads = append(heads, l.grant.Partition)
			f.headSeen(l)
		}
		i := 0
		if l.alone() && len(recs) > 0 {
			switch {
			case b != nil:
				wk.batches, wk.sizes = append(wk.batches, b), append(wk.sizes, size)
				b, size = nil, 0
			case len(wk.batches) > 0:
			case !f.mayLeave(true):
				return
			default:
				wk.alone, want = true, 1
				b = &batchInHand{recs: []int32{recs[0]}}
				wk.batches, wk.sizes = append(wk.batches, b), append(wk.sizes, 1)
				wk.takes = append(wk.takes, hold.Take{Lease: l.id, To: tos[0], Tally: a.w.input.tally(recs[:1])})
				b = nil
			}
			want = len(wk.batches)
			break
		}
		if met != nil && len(recs) == 0 {
			f.meets(l, l.at, met)
			continue
		}
		if len(recs) == 0 {
			if !open {
				f.exhausted(l, l.at)
			}
			continue
		}
		for i < len(recs) && len(wk.batches) < want {
			if b == nil {
				b = &batchInHand{}
			}
			n := min(f.rows-len(b.recs), len(recs)-i)
			b.recs = append(b.recs, recs[i:i+n]...)
			records := a.w.input.tally(recs[i : i+n])
			i += n
			to := tos[i-1]
			if i == len(recs) && !open && met == nil && a.w.oneIn(2) {
				to = l.end // the reader had reached the end before the batch left
			}
			wk.takes = append(wk.takes, hold.Take{Lease: l.id, To: to, Tally: records})
			size++
			if len(b.recs) == f.rows {
				wk.batches, wk.sizes = append(wk.batches, b), append(wk.sizes, size)
				b, size = nil, 0
			}
		}
		if met != nil && i == len(recs) {
			f.meets(l, tos[i-1], met)
		}
		if len(wk.batches) == want {
			break
		}
	}
	if len(wk.batches) < want && !f.asked {
		f.asked = true
		a.do(&hold.Hungry{Stream: f.id})
	}
	if len(wk.batches) < want && f.flushes(b, len(wk.batches)) {
		if b == nil {
			b = &batchInHand{}
		}
		wk.batches, wk.sizes = append(wk.batches, b), append(wk.sizes, size)
	}
	if len(wk.batches) == 0 {
		return
	}
	f.waits = 0
	n := 0
	for _, k := range wk.sizes {
		n += int(k)
	}
	wk.takes = wk.takes[:n]
	f.busy = true
	f.s.goes(wk.alone, 1)
	a.after(a.w.time(50*microsecond, a.w.plan.read), func() { f.deliver(&wk) })
}

// inOrder orders the leases: those that end ahead of head come last.
func (f *feed) inOrder() []*reading {
	var leases, leads []*reading
	for _, l := range f.leases { // first those for which other streams wait
		if l.grant.Backfill {
			leases = append(leases, l)
		}
	}
	for _, l := range f.leases {
		if l.grant.Backfill {
			continue
		}
		if f.s.a.w.mayGrow(l.grant, l.end) {
			leads = append(leads, l)
		} else {
			leases = append(leases, l)
		}
	}
	return append(leases, leads...)
}

// mayFlush: a short batch leaves at the end of the data, or after max_wait.
func (f *feed) mayFlush() bool {
	if f.state == pb.Standing_DRAINED || f.state == pb.Standing_END {
		return true
	}
	wait := f.s.a.w.plan.maxWait
	if wait == 0 {
		return false
	}
	now := f.s.a.w.now
	if f.waits == 0 {
		f.waits = now
		f.s.a.after(wait, f.poke)
	}
	return now >= f.waits+wait
}

func (f *feed) exhausted(l *reading, tail int64) {
	l.dry = true
	f.s.a.do(&hold.Exhausted{Lease: l.id, Tail: tail})
}

func (f *feed) deliver(wk *work) {
	f.busy = false
	f.s.goes(wk.alone, -1)
	if f.stopped {
		return
	}
	a := f.s.a
	switch a.do(&hold.Deliver{Stream: f.id, Sizes: wk.sizes, Takes: wk.takes}) {
	case hold.Over:
		f.stopped = true
		return
	case hold.Untrusted:
		f.blocked = true
		return
	case hold.Go:
		f.send(wk)
	}
	for _, l := range slices.Clone(f.leases) {
		if l.dry {
			continue
		}
		if recs, _, met := a.w.recordsOf(l.grant, l.at, l.end); len(recs) == 0 && met == nil && !a.w.mayGrow(l.grant, l.end) {
			f.exhausted(l, l.at)
		}
	}
	f.leases = slices.DeleteFunc(f.leases, func(l *reading) bool { return l.dry })
	f.poke()
}

// send makes the spans and sends the frame.
func (f *feed) send(wk *work) {
	k := 0
	for i, b := range wk.batches {
		f.delivered++
		f.credit--
		b.number = f.delivered
		for range wk.sizes[i] {
			c := wk.takes[k]
			k++
			l := f.find(c.Lease)
			b.spans = append(b.spans, hold.Span{Token: l.token, Dataset: f.dataset, Partition: l.grant.Partition, Pass: l.grant.Pass,
				Segment: l.grant.Segment, From: l.at, To: c.To, Told: true, Tally: c.Tally})
			l.at = c.To
		}
	}
	f.since = 0
	f.s.leftFor(len(wk.batches), wk.alone)
	f.s.l.send(1, frame{f.id.Number, wk.batches, f.s.a.w.now})
}

// mayGrow reports whether more records may come in a lease than are there now.
func (w *World) mayGrow(g *pb.Grant, end int64) bool {
	s := w.input.part(g.Identity).segment(g.Segment)
	if s != nil && s.logged {
		return w.input.part(g.Identity).log.away || (!s.over || end > s.end) && end > s.head(w.now)
	}
	return s != nil && s.grows > 0 && (w.now < s.grows || end > s.end) && end > s.head(w.now)
}

// headSeen notes that the reader of l is at the head, or sees it. It looks again soon.
func (f *feed) headSeen(l *reading) {
	a := f.s.a
	head := a.w.input.part(l.grant.Identity).segment(l.grant.Segment).head(a.w.now)
	p := a.w.input.part(l.grant.Identity)
	if seen := (hold.HeadSeen{Lease: l.id, Head: head, Waits: head <= l.at}); seen != l.seen && (p.log == nil || !p.log.away) {
		l.seen = seen
		a.do(&seen)
	}
	if !f.looks {
		f.looks = true
		a.after(a.w.time(5*millisecond, 100*millisecond), func() {
			f.looks = false
			f.poke()
		})
	}
}

// recordsOf gives the records of a lease that begin in [at, end) of order space, and where each reaches.
// It stops at the first record that the source does not have.
func (w *World) recordsOf(g *pb.Grant, at, end int64) (recs []int32, tos []int64, lost *met) {
	p := w.input.part(g.Identity)
	pass := int32(g.Pass) * int32(w.input.total)
	for i, piece := range g.Pieces {
		lo, hi := max(at, piece.OrderStart), min(end, piece.OrderStart+piece.End-piece.Start)
		if lo >= hi {
			continue
		}
		shift := piece.OrderStart - piece.Start
		to := func(next int64) int64 { // if no record follows in the piece, a record reaches to the end of the piece
			if next < piece.End {
				return min(next+shift, end)
			}
			if i+1 < len(g.Pieces) {
				return min(g.Pieces[i+1].OrderStart, end)
			}
			return end
		}
		if p.log != nil {
			if lost = w.read(g, p, piece, lo-shift, hi-shift, func(rec int32, next int64) {
				recs, tos = append(recs, pass+rec), append(tos, to(next))
			}); lost != nil {
				lost.at += shift
				return recs, tos, lost
			}
			continue
		}
		s := p.segment(piece.Segment)
		if lo-shift < s.low {
			return recs, tos, &met{at: lo, lost: &pb.LostRange{Segment: piece.Segment, Start: lo - shift, End: min(s.low, hi-shift)}}
		}
		head := s.head(w.now)
		for k := s.from(lo - shift); k < len(s.begins) && s.begins[k] < min(hi-shift, head); k++ {
			if bad := badRecord(g, s, piece.Segment, k); bad != nil {
				return recs, tos, &met{at: s.begins[k] + shift, bad: bad}
			}
			recs = append(recs, pass+int32(s.first+k))
			tos = append(tos, to(s.ends[k]))
		}
	}
	return recs, tos, nil
}

// badRecord is an agent's report of record k of a segment, if it cannot be decoded; else nil.
func badRecord(g *pb.Grant, s *segment, number int64, k int) *pb.BadRecord {
	bad := &pb.BadRecord{Segment: number, Start: s.begins[k], End: s.ends[k], Value: []byte("x"), Size: 1}
	switch {
	case s.bad[k]:
		bad.Column, bad.Kind, bad.Reason = "c", "decode", "no number"
	case g.Suspicion == pb.Grant_EXCLUDE:
		bad.Kind, bad.Reason = "crash", crashReason
	default:
		return nil
	}
	return bad
}
