package shardsvc

// Limits on what one worker may ask for.
const (
	maxOpenRequests = 1024
	maxCount        = 1024
)

// request is an open LeaseRequest.
type request struct {
	w     *holder
	id    uint64
	count uint32
	told  bool
	state State // what it was told last

	virtual uint32 // of a dataset of virtual ranks: which one it reads, from 1
}

// request opens a lease request; serve answers it at the end of the Step.
func (lg *ledger) request(a *speaker, w *holder, r *LeaseRequest) {
	if w == nil {
		lg.reply(Reply{To: a.session, Kind: ReplyFence, Worker: r.Worker, Reason: "this worker has not joined"})
		return
	}
	if w.state != running {
		return
	}
	d := lg.dataset(r.Dataset)
	if d == nil {
		lg.reply(Reply{To: a.session, Kind: ReplyStanding, Request: r.ID, Worker: r.Worker, Dataset: r.Dataset, State: Deleted, Reason: "no such dataset"})
		return
	}
	if w.waiting >= maxOpenRequests {
		lg.rejected("worker %d of agent %q has %d open requests", w.number, a.name, w.waiting)
		return
	}
	lg.setRate(w, d, fromSource, r.Rate)
	if r.BackfillRate > 0 {
		lg.setRate(w, d, fromBackfill, r.BackfillRate)
	}
	w.waiting++
	lg.setEnded(w.account, false)
	q := request{w: w, id: r.ID, count: min(max(r.Count, 1), maxCount), virtual: r.Virtual}
	if s := lg.above.standingOf(w); s.why.parks() {
		lg.parkRequest(d, q, s)
		return
	}
	d.waiting.Push(q)
	d.untold++
	lg.kick(d)
}

// setRate keeps the rate of w in an input, and the dataset's sum.
func (lg *ledger) setRate(w *holder, d *dataset, in input, rate float64) {
	if !(rate > 0) { // NaN too
		return
	}
	n := int64(maxRate)
	if rate < maxRate {
		n = max(int64(rate), 1)
	}
	for i := range w.rates {
		if q := &w.rates[i]; q.ds == d.id && q.in == in {
			d.sumRate[in] += n - q.rate
			q.rate = n
			return
		}
	}
	w.rates = append(w.rates, rateOf{d.id, in, n})
	d.sumRate[in] += n
	d.rated[in]++
}

func (lg *ledger) dropRates(w *holder) {
	for _, q := range w.rates {
		if d := lg.dataset(q.ds); d != nil {
			d.sumRate[q.in] -= q.rate
			d.rated[q.in]--
		}
	}
	w.rates = w.rates[:0]
}

// dropRequests closes the requests of w unanswered.
func (lg *ledger) dropRequests(w *holder) {
	if w.waiting == 0 {
		return
	}
	for _, d := range lg.datasets {
		if d != nil && d.waiting.Len() > 0 {
			d.waiting.Keep(func(r *request) bool {
				if r.w != w {
					return true
				}
				if !r.told {
					d.untold--
				}
				return false
			})
		}
	}
	w.waiting, w.parked = 0, nil
}

func (lg *ledger) kick(d *dataset) {
	if !d.kicked && d.state != removed {
		d.kicked = true
		lg.kicked = append(lg.kicked, d)
	}
}

func (lg *ledger) kickAll() {
	for _, d := range lg.datasets {
		if d != nil {
			lg.kick(d)
		}
	}
}

// serve grants what can be granted, and tells the others where they stand.
func (lg *ledger) serve() {
	for i := 0; i < len(lg.kicked); i++ {
		d := lg.kicked[i]
		if d.state != removed {
			lg.serveDataset(d)
		}
		d.kicked = false
	}
	clear(lg.kicked)
	lg.kicked = lg.kicked[:0]
}

func (lg *ledger) serveDataset(d *dataset) {
	whole := lg.standing(d, nil)
	// Without strict order the requests are alike: if the first one gets nothing, no
	// other one does.
	for refused := 0; refused < d.waiting.Len() && whole.why.grants(); {
		lg.nextInLine(d)
		r := &d.waiting.All()[0]
		var l *lease
		if lg.standing(d, r).why.grants() {
			l = lg.carve(d, r)
		}
		switch {
		case l != nil:
			refused = 0
			lg.grant(l, r.id)
			if r.count--; r.count == 0 {
				r.w.waiting--
				if !r.told {
					d.untold--
				}
				d.waiting.Pop()
			} else if d.waiting.Len() > 1 {
				d.waiting.Push(d.waiting.Pop())
			}
		case d.opt.Strict:
			refused++
			d.waiting.Push(d.waiting.Pop())
		default:
			refused = d.waiting.Len()
		}
	}
	whole = lg.standing(d, nil)
	if whole.why == allSettled {
		lg.ended(d)
	}
	if d.waiting.Len() == 0 {
		return
	}
	lg.tell(d, whole)
	if d.waiting.Len() > 0 && whole.why.grants() && !d.opt.Strict && d.leases > 0 {
		lg.watchSteal(d, max(d.nextScan, lg.now))
	}
}

// tell says to each waiting request how it stands, if that is news to it. END closes it.
func (lg *ledger) tell(d *dataset, whole standing) {
	state := whole.why.state()
	if d.opt.VirtualRanks == 0 && state == d.told && d.untold == 0 {
		return // there may be thousands
	}
	d.told, d.untold = state, 0
	d.waiting.Keep(func(r *request) (open bool) {
		s := whole
		if d.opt.VirtualRanks > 0 {
			s = lg.standing(d, r)
		}
		if state := s.why.state(); !r.told || r.state != state {
			r.told, r.state = true, state
			lg.reply(Reply{To: r.w.session(), Kind: ReplyStanding, Request: r.id, Worker: r.w.number, Dataset: d.id, State: state, Reason: s.reason})
		}
		if s.why != allSettled {
			return true
		}
		r.w.waiting--
		if whole.why == allSettled {
			lg.endedAll(r.w)
		} else {
			d.virtualRank(r.virtual).ended = r.w
		}
		return false
	})
}

// ended is called when all of d is settled. A rank that was told END of its virtual rank
// before still had to report steps, as the others did. From now on it counts as having
// reported all steps.
func (lg *ledger) ended(d *dataset) {
	if d.done {
		return
	}
	d.done = true
	lg.report(Report{Kind: ReportDatasetDone, Dataset: d.id, Units: d.total * int64(d.opt.Passes)})
	for _, p := range d.parts {
		if w := p.ended; w != nil {
			p.ended = nil
			lg.endedAll(w)
		}
	}
}

// endedAll is called when w was told END. If w holds nothing and asks for nothing else, it
// counts as having reported all steps.
func (lg *ledger) endedAll(w *holder) {
	if w.waiting == 0 && w.leases == nil && w.account.newest == w {
		lg.setEnded(w.account, true)
	}
}

// deleted tells one request that its dataset is not there any more, and closes it.
func (lg *ledger) deleted(d *dataset, r request, reason string) {
	r.w.waiting--
	lg.reply(Reply{To: r.w.session(), Kind: ReplyStanding, Request: r.id, Worker: r.w.number, Dataset: d.id, State: Deleted, Reason: reason})
}

func (lg *ledger) grant(l *lease, id uint64) {
	lg.stats.Grants++
	ps, p := l.pass, l.pass.p
	lo, hi := lg.pieces(l)
	r := lg.newReply()
	r.To, r.Kind, r.Request, r.Token, r.Worker = l.w.session(), ReplyGrant, id, l.token, l.w.number
	r.Dataset, r.Partition, r.Identity, r.Pass = p.ds.id, p.no, p.source, ps.n
	r.Segment, r.Start, r.End, r.Tries = l.segment, l.start-l.shift, l.end-l.shift, l.tries.lost()
	r.Suspicion, r.Backfill = l.tries.suspicion().told(), p.in == fromBackfill
	if r.Leads = l.leads(); r.Leads {
		r.At = p.LineEnd() - l.shift
	}
	r.PieceLo, r.PieceHi = lo, hi
}

// allOut says whether every record of a dataset, or of one virtual rank of it, is settled
// or leased. Then only records that come back can be granted.
func (lg *ledger) allOut(id DatasetID, virtual uint32) bool {
	d := lg.dataset(id)
	if d == nil || !d.partsAll {
		return false
	}
	if virtual > 0 {
		p := d.virtualRank(virtual)
		return p != nil && p.left.drained()
	}
	return d.undrained == 0
}

// noneLeft says whether every record of a dataset is settled.
func (lg *ledger) noneLeft(id DatasetID) bool {
	d := lg.dataset(id)
	return d != nil && d.partsAll && d.unsettled == 0
}

// newestLease is the highest sequence of the leases that w has of a dataset, or of one
// virtual rank of it; 0: none.
func (lg *ledger) newestLease(w *holder, id DatasetID, virtual uint32) (newest uint64) {
	for l := w.leases; l != nil; l = l.wnext {
		if p := l.pass.p; p.ds.id == id && (virtual == 0 || p.virtual == virtual) {
			newest = max(newest, l.token.Sequence)
		}
	}
	return newest
}
