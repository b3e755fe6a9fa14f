package shardsvc

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/line"
)

// Every answer of the core is a promise. The oracle remembers it, and agents and trainers
// receive it.

// acksOf are the acks in a message.
func acksOf(ev Event) []Ack {
	if m, ok := ev.(*Message); ok {
		return m.Acks
	}
	return nil
}

// promiseAck tells the oracle of acks. One answer stands for all acks of its lease up to its prefix.
func (s *sim) promiseAck(r Reply, said []Ack) {
	l := s.granted[r.Token]
	if l == nil || r.Code != Durable {
		return
	}
	for _, k := range said {
		if k.Token != r.Token || k.Prefix > r.Prefix || k.Prefix <= l.settled {
			continue
		}
		for _, x := range s.ranges(l, l.settled, k.Prefix) {
			s.fail(s.book.Ack(x, l.rank, k.Step, k.Told && k.From == l.settled))
		}
		l.settled = k.Prefix
	}
}

// sameUnits checks that the oracle and the core count the same units.
func (s *sim) sameUnits() {
	for _, d := range s.w.core.Datasets() {
		if n := s.book.Settled(); d.Counts.Settled != n {
			s.t.Fatalf("the core has %d settled units, the oracle %d", d.Counts.Settled, n)
		}
		s.sameRecords(d.Records)
	}
}

// promise tells the oracle of an answer that is committed, whether or not it is delivered.
func (s *sim) promise(r Reply, pieces []Piece) {
	switch r.Kind {
	case ReplyJoin:
		if r.Refused {
			break
		}
		t := s.byNumber(r.To, r.Worker)
		if t != nil && !t.joined {
			s.newest[t.rank] = t.inc
		}
	case ReplyGrant:
		l := &simLease{token: r.Token, part: r.Partition, pass: r.Pass, segment: r.Segment, start: r.Start, prefix: r.Start, end: r.End,
			frontier: r.Start, said: r.Start, settled: r.Start, pieces: slices.Clone(pieces[r.PieceLo:r.PieceHi])}
		if t := s.byNumber(r.To, r.Worker); t != nil {
			l.rank = t.rank
		}
		for _, x := range s.ranges(l, l.start, l.end) {
			s.fail(s.book.Grant(x))
		}
		s.nobodyUses(l)
		s.inOrder(l)
		s.ofItsVirtualRank(r.Request, l)
		s.granted[r.Token] = l
	case ReplyHeld:
		if l := s.granted[r.Token]; !r.Refused && r.Prefix < r.End {
			for _, x := range s.ranges(l, r.Prefix, r.End) {
				s.fail(s.book.Grant(x))
			}
			if r.Prefix < l.settled {
				s.t.Fatalf("%s was acked up to %d, but when it was asserted again the core answered %d", tok(r.Token), l.settled, r.Prefix)
			}
		}
	case ReplyStanding:
		switch t := s.byNumber(r.To, r.Worker); {
		case r.State == End:
			s.endTold(r.Request)
		case t != nil && r.State == Restoring && !t.restored:
			t.gated = true
		}
	}
}

// nobodyUses: "Rows in the hands of a trainer that may still run are never handed to a second
// trainer" (guarantee 6).
func (s *sim) nobodyUses(g *simLease) {
	if s.model == Replicated || s.model == Private {
		return
	}
	for _, t := range s.trainers {
		for _, l := range t.leases {
			if l.part == g.part && l.pass == g.pass && l.segment == g.segment && l.prefix < g.end && g.start < l.end {
				s.t.Fatalf("%s [%d, %d) was granted while rank %d inc %d uses [%d, %d)", tok(g.token), g.start, g.end, t.rank, t.inc, l.prefix, l.end)
			}
		}
	}
}

// inOrder: with `order: strict` nothing before a lease waits to be granted (guarantee 9).
// (CheckInvariants checks that one worker has all leases.)
func (s *sim) inOrder(g *simLease) {
	if !s.opt.Strict {
		return
	}
	for _, ps := range s.w.core.parts[g.part].passes {
		end := ps.p.LineEnd()
		if ps.n == g.pass {
			end, _ = ps.OnLine(line.Place{Segment: g.segment, Offset: g.start})
		}
		if ps.n <= g.pass && (ps.frontier < end || len(ps.pending) > 0 && ps.pending[0].Start < end) {
			s.t.Fatalf("order is strict, but pass %d [%d, %d) was granted while earlier records wait", g.pass, g.start, g.end)
		}
	}
}

func (s *sim) byNumber(to Session, number uint32) *simTrainer {
	for _, t := range s.trainers {
		if t.agent != nil && t.agent.session == to && t.number == number {
			return t
		}
	}
	return nil
}

func (s *sim) deliver(r Reply, pieces []Piece) {
	i := slices.IndexFunc(s.agents, func(a *simAgent) bool { return a.session == r.To })
	if i < 0 {
		return
	}
	a := s.agents[i]
	t := s.byNumber(r.To, r.Worker)
	switch r.Kind {
	case ReplyClose:
		a.session = 0
	case ReplyJoin:
		if t != nil && r.Refused {
			if t.inc == s.newest[t.rank] && s.model == Shared {
				s.t.Fatalf("shared: the core refused a trainer that lives: %s", r.Reason)
			}
			s.remove(t)
		} else if t != nil {
			if !t.joined {
				t.step = r.Step
			}
			t.paused = 0 // if yields are still paused, its agent tells it again
			t.joined, t.generation = true, r.Generation
		}
	case ReplyFence:
		if t != nil {
			s.remove(t)
		}
	case ReplyEnd:
		if t != nil {
			t.ending = true
		}
	case ReplyGrant:
		if t != nil {
			t.leases = append(t.leases, s.granted[r.Token])
		}
	case ReplyHeld, ReplyAck, ReplySteal:
		s.deliverLease(a, r)
	case ReplyCut:
		s.cutAnswered(t, r)
	case ReplyPause:
		s.pauseTold(t, r)
	}
}

func (s *sim) deliverLease(a *simAgent, r Reply) {
	for _, t := range s.trainers {
		i := slices.IndexFunc(t.leases, func(l *simLease) bool { return l.token == r.Token })
		if i < 0 || t.agent != a {
			continue
		}
		l := t.leases[i]
		bad := r.Refused || r.Kind == ReplyAck && r.Code != Durable
		switch {
		case bad && (s.model != Replicated && s.model != Private || r.Code == Invalid):
			s.t.Fatalf("the core refused a lease whose holder lives: %s", r.text(nil))
		case bad:
			s.remove(t)
			return
		case r.Kind == ReplySteal:
			t.asks = append(t.asks, r)
			return
		case r.Kind == ReplyHeld:
			l.end, l.said = r.End, r.Prefix
		}
		l.prefix = max(l.prefix, r.Prefix)
		l.frontier = max(l.frontier, l.prefix)
		if l.prefix >= l.end {
			t.leases = slices.Delete(t.leases, i, i+1)
		}
		return
	}
}

func (s *sim) remove(t *simTrainer) {
	t.leases = nil
	s.trainers = slices.DeleteFunc(s.trainers, func(x *simTrainer) bool { return x == t })
}
