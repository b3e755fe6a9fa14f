package shardsvc

import "github.com/headrace/headrace/shardsvc/line"

// ack settles the records of a lease below a prefix. It is idempotent: a prefix
// that is durable already is answered the same again.
func (c *Core) ack(a *agent, k *Ack) {
	s := c.find(k.Token)
	if s == nil || s.holder().agent != a || s.l == nil && (s.w.fenced || s.epoch != c.epoch) {
		c.refuse(a, k, Stale, "unknown or fenced token: its rows belong to others")
		return
	}
	l := s.l
	if l == nil {
		if k.Prefix > s.final {
			c.refuse(a, k, Invalid, "prefix lies outside the lease")
		} else {
			c.durable(a, k)
		}
		return
	}
	pos := l.line(k.Prefix)
	switch {
	case pos < l.start || pos > l.end:
		c.refuse(a, k, Invalid, "prefix lies outside the lease")
		return
	case pos <= l.prefix: // a repeat
	case k.Step < l.step && k.Step != 0:
		c.refuse(a, k, Invalid, "step is lower than that of an earlier ack of the lease")
		return
	case !c.folds && k.Step <= l.w.rank.step && k.Step != 0:
		c.refuse(a, k, Invalid, "the step was reported already: it is closed")
		return
	default:
		c.settle(l, pos, k)
	}
	c.durable(a, k)
}

// durable answers an ack: all of its lease up to the prefix is settled. Acks of a
// lease come in runs, and the last one's answer is that of all.
func (c *Core) durable(a *agent, k *Ack) {
	c.stats.Acks++
	if n := len(c.fx.Replies); n > 0 && a.session != 0 {
		r := &c.fx.Replies[n-1]
		if r.Kind == ReplyAck && r.Code == Durable && r.Token == k.Token && r.To == a.session {
			r.Prefix = max(r.Prefix, k.Prefix)
			return
		}
	}
	c.reply(Reply{To: a.session, Kind: ReplyAck, Token: k.Token, Prefix: k.Prefix, Code: Durable})
}

func (c *Core) refuse(a *agent, k *Ack, code Code, reason string) {
	c.stats.Refused++
	c.reply(Reply{To: a.session, Kind: ReplyAck, Token: k.Token, Prefix: k.Prefix, Code: code, Reason: reason})
	c.report(Report{Kind: ReportAckRefused, Token: k.Token, Agent: a.name, Reason: reason})
}

// settle moves the rows of l below pos from leased to settled.
func (c *Core) settle(l *lease, pos int64, k *Ack) {
	ps, w := l.pass, l.w
	c.growTo(ps.p, line.Place{Segment: l.segment, Offset: pos - l.shift})
	units := ps.Units(l.prefix, pos)
	tally := k.tally(l, units)
	ps.done.Add(l.prefix, pos, line.Acked)
	ps.kinds[line.Acked] += units
	ps.leasedUnits -= units
	if ps.done == &ps.base {
		ps.records.Add(tally)
		c.dirtyPass(ps)
	} else {
		c.addPiece(ps, w.rank, piece{start: l.prefix, end: pos, rank: w.rank.no, generation: c.generation, step: k.Step, Tally: tally})
	}
	if len(ps.tries) > 0 {
		c.dropTries(ps, l.prefix, pos)
	}
	if c.yields != nil && k.Step > 0 { // with 0 an agent acks what holds no record
		c.holdAcked(w)
	}
	w.units += uint64(units)
	w.since = c.now
	if !w.stepped {
		w.stepped = true
		c.watchStall(w) // the first step shortens its patience
	}
	l.prefix, l.step = pos, max(l.step, k.Step)
	if pos == l.end {
		c.unlink(l)
		c.changed(ps.p)
	}
}

// stepReport: all acks of this worker up to and including step came before.
func (c *Core) stepReport(a *agent, r *StepReport) {
	w := a.byNumber[r.Worker]
	if w == nil || w.rank.worker != w || !w.rank.called && c.gated(w) {
		return // before it restored its steps are those of no model
	}
	if r.Step > w.rank.step {
		w.rank.step = r.Step
		c.topStep = max(c.topStep, r.Step)
		c.dirtyRank(w.rank)
		if !c.folds {
			c.askDue = true
			c.foldOld(w.rank)
		}
	}
}
