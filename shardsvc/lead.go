package shardsvc

// A lead is a lease that ends ahead of head. The last lease of an unsealed segment may do
// that: its holder waits there for new records, and nobody asks the master for a few
// records at a time. A pass has one lead at most. It is the last lease on the line, so its
// end is the frontier. Example: head 500, lead [480, 2000): [480, 500) is there to read.
//
// There are no records ahead of head yet. Offsets there count nowhere, and are never
// pending or stored. If a lead ends early or comes back, the frontier falls back to head.
// After a restart, head is the stored end, or a later one that is proven: a lead that is
// asserted again proves its start and the positions that it has delivered.

// ahead counts the units that are planned ahead of head.
func (ps *pass) ahead() int64 {
	if !ps.p.Growing() {
		return 0
	}
	return max(0, ps.frontier-ps.p.LineEnd())
}

// reach is where the part of a lease that is there ends: at its end, or at head if that
// comes first.
func (l *lease) reach() int64 {
	if !l.pass.p.Growing() {
		return l.end
	}
	return min(l.end, max(l.pass.p.LineEnd(), l.prefix))
}

// leads says whether l ends ahead of head.
func (l *lease) leads() bool {
	p := l.pass.p
	return p.Growing() && l.end > p.LineEnd()
}

// lead is the lease that ends ahead of head, if there is one.
func (ps *pass) lead() *lease {
	if ps.ahead() > 0 {
		for l := ps.leases; l != nil; l = l.pnext {
			if l.end == ps.frontier {
				return l
			}
		}
	}
	return nil
}

// mayLead says whether the next lease of the pass may end ahead of head.
func (ps *pass) mayLead() bool {
	return ps.p.Growing() && ps.frontier <= ps.p.LineEnd() && ps.frontier < ps.p.Farthest()
}

// reachOut moves the end of a lease that would end at head ahead of head, to about size
// units.
func (ps *pass) reachOut(start, end, size int64) int64 {
	if p := ps.p; ps.mayLead() && end == p.LineEnd() && start >= p.Segs[len(p.Segs)-1].Base {
		return max(end, min(start+size, p.Farthest()))
	}
	return end
}

// comeBack takes the part of [from, end) that lies ahead of head out of the plan. It
// returns where the rest ends.
func (lg *ledger) comeBack(ps *pass, from, end int64) int64 {
	if ps.ahead() == 0 || end != ps.frontier {
		return end
	}
	at := max(from, ps.p.LineEnd())
	ps.p.ds.planned -= ps.Units(at, end)
	ps.frontier = at
	return at
}

// endLead ends the lead of p, because no record will come after head. Its holder learns
// that from a steal request whose answer changes nothing.
func (lg *ledger) endLead(p *partition) {
	if ps := p.last(); ps != nil {
		if l := ps.lead(); l != nil {
			head := p.LineEnd()
			if lg.fx != nil {
				lg.reply(Reply{To: l.w.session(), Kind: ReplySteal, Token: l.token, At: head - l.shift})
			}
			lg.giveBack(l, max(l.prefix, head), untouched)
		}
	}
}

// recallLeads asks the holders for the part ahead of head. Leads may be long, and a pause
// must take effect soon.
func (lg *ledger) recallLeads(d *dataset) {
	for _, p := range d.parts {
		if ps := p.last(); ps != nil {
			if l := ps.lead(); l != nil && !l.asked && l.w.mayAsk() {
				lg.askFor(l, l.w, max(l.prefix, l.frontier, p.LineEnd()))
			}
		}
	}
}

// leadsOf counts w's leads in d, and gives one of them that w may be asked for.
func (lg *ledger) leadsOf(d *dataset, w *holder) (n int, ask *lease) {
	for l := w.leases; l != nil; l = l.wnext {
		if l.pass.p.ds == d && l.leads() {
			n++
			if ask == nil && !l.asked && lg.now >= l.stealAfter && w.mayAsk() {
				ask = l
			}
		}
	}
	return n, ask
}

// nextInLine moves the request that gets the next piece to the front. Where records are
// there, that is the oldest request. Where records are only expected, it is the request of
// the process with the fewest leads.
func (lg *ledger) nextInLine(d *dataset) {
	if d.opt.Strict || d.waiting.Len() < 2 {
		return
	}
	if lg.leveling(d) {
		lg.poorestFirst(d)
		return
	}
	if d.incomplete == 0 {
		return // nothing grows
	}
	p := d.upNext()
	if p == nil {
		return
	}
	if ps := p.last(); !p.Growing() || ps != nil && (ps.frontier < p.LineEnd() || len(ps.pending) > 0) {
		return
	}
	all := d.waiting.All()
	best, fewest := 0, -1
	for i := range all {
		if n, _ := lg.leadsOf(d, all[i].w); fewest < 0 || n < fewest {
			best, fewest = i, n
		}
	}
	r := all[best]
	copy(all[1:best+1], all[:best])
	all[0] = r
}

// shareLeads asks the holder of the most leads for one of them, if w still has fewer
// afterwards.
func (lg *ledger) shareLeads(d *dataset, w *holder) bool {
	own, _ := lg.leadsOf(d, w)
	var from *lease
	most := own + 1
	for _, v := range lg.holders {
		if v == w {
			continue
		}
		if n, l := lg.leadsOf(d, v); n > most && l != nil {
			from, most = l, n
		}
	}
	if from == nil {
		return false
	}
	lg.askFor(from, w, max(from.prefix, from.frontier, from.pass.p.LineEnd()))
	return true
}
