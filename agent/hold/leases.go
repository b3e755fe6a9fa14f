package hold

import (
	"slices"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

func (c *Core) newLease(s *stream, t Token, start, end int64) *lease {
	c.lastLease++
	l := &lease{id: c.lastLease, token: t, s: s, end: end, frontier: start, stepped: start, durable: start, tail: Never}
	c.byToken[t], c.byLease[l.id] = l, l
	s.leases = append(s.leases, l)
	return l
}

// remove forgets a lease of which nothing is open.
func (c *Core) remove(l *lease) {
	l.dead = true
	c.unname(l)
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
	if s == nil || s.closed || !s.w.deliverable() {
		m := c.message()
		m.Releases = append(m.Releases, &pb.Release{Token: g.Token, Prefix: g.LeaseStart, Reason: "nobody here asks for it any more"})
		return
	}
	l := c.newLease(s, tokenOf(g.Token), g.LeaseStart, g.LeaseEnd)
	l.partition, l.pass, l.segment = g.Partition, g.Pass, g.Segment
	s.hungry, s.standing = false, pb.Standing_WAIT
	s.lastGrant = max(1, g.LeaseEnd-g.LeaseStart)
	s.sized = s.sized || s.ratedFrom > 0 && g.Request >= s.ratedFrom
	c.fx.Grants = append(c.fx.Grants, Granted{Stream: s.id, Lease: l.id, Token: l.token, Grant: g})
	c.want(s)
}

// steal gives up the undelivered tail, or refuses. What was delivered stays.
func (c *Core) steal(a *pb.StealAsk) {
	l := c.byToken[tokenOf(a.Token)]
	answer := &pb.StealAnswer{Token: a.Token, Refused: true}
	if l != nil && !l.dead {
		if at := max(a.At, l.frontier); at < l.end {
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
	c.fx.Ends = append(c.fx.Ends, LeaseEnd{Stream: l.s.id, Lease: l.id, End: end})
	c.rideTail(l)
	c.done(l)
	if !l.s.closed {
		c.want(l.s)
	}
}

// drop: the lease is gone (revoked, or its worker fenced). Nothing more is said
// of it.
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

// refuse: the master did not take our assertion. If the trainer has rows of the
// lease that are not durable, it can not go on.
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

// failed: nothing at or beyond At can be read; what lies before it goes on.
func (c *Core) failed(l *lease, ev *Failed) {
	at := max(ev.At, l.frontier)
	f := &pb.ReadFailure{Token: l.token.proto(), At: at, Permanent: ev.Permanent, Kind: ev.Kind, Message: ev.Message}
	if c.talking() {
		c.message().Failures = append(c.message().Failures, f)
	}
	c.unsure = append(c.unsure, unsure{at: c.unsureAt(), fail: f, lease: l})
	c.shrink(l, at)
}

// closeStream gives back what the trainer does not use any more. What it stepped
// stays in the books until the master has answered.
func (c *Core) closeStream(s *stream, reason string) {
	if s.closed {
		return
	}
	s.closed = true
	for _, id := range s.requests {
		delete(c.requests, id)
	}
	s.requests = nil
	for _, l := range slices.Clone(s.leases) {
		if l.end > l.stepped {
			if reason != "" && c.talking() {
				m := c.message()
				m.Releases = append(m.Releases, &pb.Release{Token: l.token.proto(), Prefix: l.stepped, Reason: reason})
			}
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
