package hold

import (
	"slices"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

func (c *Core) newLease(s *stream, t Token, start, end int64) *lease {
	c.lastLease++
	l := &lease{id: c.lastLease, token: t, s: s, end: end, frontier: start, stepped: start, durable: start, tail: Never, head: Never}
	c.byToken[t], c.byLease[l.id] = l, l
	s.leases = append(s.leases, l)
	return l
}

// remove forgets a lease that has nothing open.
func (c *Core) remove(l *lease) {
	l.dead = true
	delete(c.byToken, l.token)
	delete(c.byLease, l.id)
	l.s.leases = slices.DeleteFunc(l.s.leases, func(o *lease) bool { return o == l })
	if l.dirty {
		c.dirty = slices.DeleteFunc(c.dirty, func(o *lease) bool { return o == l })
		l.dirty = false
	}
	if l.s.closed && len(l.s.leases) == 0 {
		c.dropStream(l.s)
	}
}

// grant takes a lease in for the stream whose request it answers.
func (c *Core) grant(g *pb.Grant) {
	s := c.requests[g.Request]
	if s != nil {
		delete(c.requests, g.Request)
		s.answeredRequest(g.Request)
	}
	if s == nil || s.closed || s.rounds.ends() || !s.w.deliverable() {
		m := c.message()
		m.Releases = append(m.Releases, &pb.Release{Token: g.Token, Prefix: g.LeaseStart, Reason: "nobody here asks for it any more"})
		c.missingElsewhere(g.Worker, g.Dataset, s, gap{partition: g.Partition, pass: g.Pass, segment: g.Segment, at: g.LeaseStart})
		return
	}
	if s.overtakes(g) {
		m := c.message()
		m.Releases = append(m.Releases, &pb.Release{Token: g.Token, Prefix: g.LeaseStart, Reason: "what lies before it could not be read"})
		s.missing(gap{partition: g.Partition, pass: g.Pass, segment: g.Segment, at: g.LeaseStart})
		c.want(s)
		return
	}
	l := c.newLease(s, tokenOf(g.Token), g.LeaseStart, g.LeaseEnd)
	if l.partition, l.pass, l.segment = g.Partition, g.Pass, g.Segment; g.Backfill {
		l.in = ofBackfill
	}
	if g.Head != nil {
		l.head = max(*g.Head, g.LeaseStart)
		l.ahead = l.head == g.LeaseStart
	}
	s.rounds.granted(l)
	s.hungry, s.gaveUp = false, false
	if !slices.ContainsFunc(s.requests, func(id uint64) bool { return id <= s.told }) {
		s.standing = pb.Standing_WAIT // a request that was told something before is told changes only
	}
	s.lastGrant, s.lastOf = max(1, g.LeaseEnd-g.LeaseStart), l.in
	if from := s.ratedFrom[l.in]; from > 0 && g.Request >= from {
		s.sized[l.in] = true
	}
	c.fx.Grants = append(c.fx.Grants, Granted{Stream: s.id, Lease: l.id, Token: l.token, Grant: g, Standing: s.standing})
	c.want(s)
}

// steal gives up the undelivered tail, or refuses. Delivered records stay.
func (c *Core) steal(a *pb.StealAsk) {
	l := c.byToken[tokenOf(a.Token)]
	answer := &pb.StealAnswer{Token: a.Token, Refused: true}
	if l != nil && !l.dead {
		at := max(a.At, l.frontier)
		if at < l.end {
			answer.Refused, answer.At = false, at
			c.shrink(l, at)
		}
	}
	m := c.message()
	m.StealAnswers = append(m.StealAnswers, answer)
}

// shrink lets the lease end at end, which is at or beyond the frontier.
func (c *Core) shrink(l *lease, end int64) {
	if end >= l.end {
		return
	}
	l.end = end
	if !l.s.closed {
		c.fx.Ends = append(c.fx.Ends, LeaseEnd{Stream: l.s.id, Lease: l.id, End: end})
	}
	c.rideTail(l)
	c.done(l)
	if !l.s.closed {
		c.want(l.s)
	}
}

// drop handles a lease that is gone: it was revoked, or its worker is fenced. Nothing more is
// sent about it.
func (c *Core) drop(l *lease) {
	if l.dead {
		return
	}
	s := l.s
	if l.end > l.frontier && !s.closed {
		c.fx.Ends = append(c.fx.Ends, LeaseEnd{Stream: s.id, Lease: l.id, End: l.frontier})
	}
	c.remove(l)
	if !s.closed {
		c.want(s)
	}
}

// refuse handles a lease that we asserted and the master refused. If the trainer has rows of the
// lease that are not durable, it cannot go on.
func (c *Core) refuse(l *lease, reason string) {
	for i := range l.s.w.resumed {
		if r := &l.s.w.resumed[i]; r.Stream == l.s.id.Number {
			r.Refused, r.Reason = true, reason
		}
	}
	if l.frontier > l.durable && l.s.w.state != gone {
		c.fence(l.s.w, reason)
		return
	}
	c.drop(l)
}

// failed handles a lease that cannot be read from At on. The part before At goes on.
func (c *Core) failed(l *lease, ev *Failed) {
	at := max(ev.At, l.frontier)
	if !ev.Loose {
		l.s.missing(gap{partition: l.partition, pass: l.pass, segment: l.segment, at: at})
	}
	f := &pb.ReadFailure{Token: l.token.proto(), At: at, Permanent: ev.Permanent, Kind: ev.Kind, Message: ev.Message, Lost: ev.Lost, Bad: ev.Bad}
	if c.talking() {
		c.message().Failures = append(c.message().Failures, f)
	}
	c.unsure = append(c.unsure, unsure{at: c.unsureAt(), fail: f, lease: l})
	c.shrink(l, at)
	if !ev.Loose {
		c.releaseBehind(l)
	}
	if s := l.s; s.virtual > 0 {
		// The part that was given up is granted to this stream again, and to no other. So
		// the batch that breaks off there is not the last one. The next grant says how it
		// stands.
		if s.gaveUp = true; s.standing == pb.Standing_DRAINED {
			c.fx.States = append(c.fx.States, StateOf{Stream: s.id, State: pb.Standing_WAIT})
		}
	}
}

// gap is a place from which a partition could not be read on. Records after it must not be
// delivered before it was read. But grants of such records may be on their way already: they
// answer requests that were open when the master was told of the gap.
type gap struct {
	partition, pass uint32
	segment, at     int64
	request         uint64 // the last one made before
}

// missing notes a gap: k has to come again before what lies after it.
func (s *stream) missing(k gap) {
	if n := len(s.requests); n > 0 {
		k.request = s.requests[n-1]
		s.gaps = append(s.gaps, k)
	}
}

// missingElsewhere notes a gap in the other streams of a worker: what one stream gives back
// has to come again before another one delivers what lies after it. Example: a stream closes
// while it asks, and the next one asks too. The first request is granted [0, 100) and nobody
// takes it; the second one is granted [100, 200).
func (c *Core) missingElsewhere(number, dataset uint32, but *stream, k gap) {
	w := c.byNumber[number]
	if w == nil {
		return
	}
	for _, s := range w.streams {
		if s != but && s.strict && s.dataset == dataset && !s.closed {
			s.missing(k)
		}
	}
}

// overtakes says whether g lies after a gap that was not granted again yet. The caller then
// gives g back and asks again. Only answers to requests that were open when the gap was noted
// count: the master may have answered them before it heard of the gap. Nobody knows whether
// it had, so in doubt the grant goes back.
func (s *stream) overtakes(g *pb.Grant) bool {
	behind := func(k gap) bool { return g.Request <= k.request && g.Partition == k.partition && k.before(g) }
	if slices.ContainsFunc(s.gaps, behind) {
		return true
	}
	s.gaps = slices.DeleteFunc(s.gaps, func(k gap) bool {
		filled := g.Partition == k.partition && g.Pass == k.pass && g.Segment == k.segment && g.LeaseStart <= k.at && k.at < g.LeaseEnd
		return filled || !slices.ContainsFunc(s.requests, func(id uint64) bool { return id <= k.request })
	})
	return false
}

func (k *gap) before(g *pb.Grant) bool {
	if g.Pass != k.pass {
		return g.Pass > k.pass
	}
	if g.Segment != k.segment {
		return g.Segment > k.segment
	}
	return g.LeaseStart > k.at
}

// releaseBehind gives back the undelivered ranges that lie after l in its partition: in strict
// order they must not leave before the rest of l. If the Release is lost, Held of the next
// session says the same.
func (c *Core) releaseBehind(l *lease) {
	for _, o := range slices.Clone(l.s.leases) {
		if o == l || o.partition != l.partition || o.end == o.frontier || !o.behind(l) {
			continue
		}
		if c.talking() {
			m := c.message()
			m.Releases = append(m.Releases, &pb.Release{Token: o.token.proto(), Prefix: o.frontier, Reason: "what lies before it could not be read"})
		}
		c.shrink(o, o.frontier)
	}
}

func (l *lease) behind(o *lease) bool {
	if l.pass != o.pass {
		return l.pass > o.pass
	}
	if l.segment != o.segment {
		return l.segment > o.segment
	}
	return l.durable >= o.end
}

// closeStream gives back the rows that the trainer does not use any more. The acks of its stepped
// rows are kept until the master has answered.
func (c *Core) closeStream(s *stream, reason string) {
	if !s.closed {
		c.stopStream(s)
		c.giveBack(s, reason)
	}
}

// stopStream ends the deliveries and requests of a stream.
func (c *Core) stopStream(s *stream) {
	s.closed = true
	if s.rounds != nil {
		s.rounds.closed = true
	}
	for _, id := range s.requests {
		delete(c.requests, id)
	}
	s.requests = nil
}

// giveBack gives up the part of a closed stream's leases that is not stepped.
func (c *Core) giveBack(s *stream, reason string) {
	for _, l := range slices.Clone(s.leases) {
		if l.end > l.stepped {
			if reason != "" && c.talking() {
				m := c.message()
				m.Releases = append(m.Releases, &pb.Release{Token: l.token.proto(), Prefix: l.stepped, Reason: reason})
			}
			c.missingElsewhere(s.id.Worker, s.dataset, s, gap{partition: l.partition, pass: l.pass, segment: l.segment, at: l.stepped})
			l.end, l.frontier = l.stepped, min(l.frontier, l.stepped)
		}
		c.done(l)
	}
	if len(s.leases) == 0 {
		c.dropStream(s)
	}
}

func (c *Core) dropStream(s *stream) {
	s.w.streams = slices.DeleteFunc(s.w.streams, func(o *stream) bool { return o == s })
	if s.w.state == gone && !c.leaving(s.w) {
		c.forget(s.w.join.Worker)
	}
}

// done removes the lease when everything that it still covers is durable.
func (c *Core) done(l *lease) {
	if !l.dead && l.durable >= l.end {
		c.remove(l)
	}
}

func (s *stream) answeredRequest(id uint64) {
	s.requests = slices.DeleteFunc(s.requests, func(o uint64) bool { return o == id })
}
