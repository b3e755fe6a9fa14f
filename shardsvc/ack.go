package shardsvc

import "github.com/headrace/headrace/shardsvc/line"

// ack settles the records of a lease below a prefix. It is idempotent: a prefix that is
// durable is answered the same again. Example: lease [100, 200) with prefix 150; an ack at
// 180 settles [150, 180), and an ack at 150 changes nothing.
func (lg *ledger) ack(a *speaker, k *Ack) {
	s := lg.find(k.Token)
	if s == nil || s.holder().speaker != a || s.l == nil && (s.w.state == fenced || s.token.Epoch != lg.epoch) {
		lg.refuse(a, k, Stale, "unknown or fenced token: its rows belong to others")
		return
	}
	l := s.l
	if l == nil {
		if k.Prefix > s.final {
			lg.refuse(a, k, Invalid, "prefix lies outside the lease")
		} else {
			lg.durable(a, k)
		}
		return
	}
	pos := l.line(k.Prefix)
	switch {
	case pos < l.start || pos > l.end:
		lg.refuse(a, k, Invalid, "prefix lies outside the lease")
		return
	case pos <= l.prefix: // a repeat
	case k.Step < l.step && k.Step != 0:
		lg.refuse(a, k, Invalid, "step is lower than that of an earlier ack of the lease")
		return
	case !lg.folds && k.Step <= l.w.account.step && k.Step != 0:
		lg.refuse(a, k, Invalid, "the step was reported already: it is closed")
		return
	default:
		lg.settle(l, pos, k)
	}
	lg.durable(a, k)
}

// durable answers an ack: the lease is settled up to the prefix. Several acks of one lease
// in a row get one answer, that of the last one.
func (lg *ledger) durable(a *speaker, k *Ack) {
	lg.stats.Acks++
	if a.session == 0 {
		return
	}
	if n := len(lg.fx.Replies); n > 0 {
		r := &lg.fx.Replies[n-1]
		if r.Kind == ReplyAck && r.Code == Durable && r.Token == k.Token && r.To == a.session {
			r.Prefix = max(r.Prefix, k.Prefix)
			return
		}
	}
	r := lg.newReply()
	r.To, r.Kind, r.Token, r.Prefix, r.Code = a.session, ReplyAck, k.Token, k.Prefix, Durable
}

func (lg *ledger) refuse(a *speaker, k *Ack, code Code, reason string) {
	lg.stats.Refused++
	lg.reply(Reply{To: a.session, Kind: ReplyAck, Token: k.Token, Prefix: k.Prefix, Code: code, Reason: reason})
	lg.report(Report{Kind: ReportAckRefused, Token: k.Token, Agent: a.name, Code: code, Reason: reason})
}

// settle moves the rows of l below pos from leased to settled.
func (lg *ledger) settle(l *lease, pos int64, k *Ack) {
	ps, w := l.pass, l.w
	if ps.p.Growing() {
		lg.growTo(ps.p, line.Place{Segment: l.segment, Offset: pos - l.shift})
	}
	units := ps.Units(l.prefix, pos)
	tally := k.tally(l, units)
	ps.p.ds.bad.good += tally.Rows
	ps.done.Add(l.prefix, pos, line.Acked)
	ps.kinds[line.Acked] += units
	ps.leasedUnits -= units
	if ps.done == &ps.base {
		ps.records.Add(tally)
		lg.dirtyPass(ps)
	} else {
		lg.addPiece(ps, w.account, piece{start: l.prefix, end: pos, rank: w.account.no, generation: lg.generation, step: k.Step, Tally: tally})
	}
	if len(ps.tries) > 0 {
		lg.dropTries(ps, l.prefix, pos)
	}
	if k.Step > 0 { // an agent acks a range without records with step 0
		lg.above.acked(w)
	}
	w.units += uint64(units)
	w.since = lg.now
	if !w.stepped {
		w.stepped = true
		lg.watchStall(w) // the first step shortens its patience
	}
	l.prefix, l.step = pos, max(l.step, k.Step)
	if pos == l.end {
		lg.unlink(l)
		lg.changed(ps.p)
	}
}
