package shardsvc

import (
	"slices"
)

// Limits on what one worker may ask for.
const (
	maxOpenRequests = 1024
	maxCount        = 1024
)

// request is an open LeaseRequest.
type request struct {
	w     *worker
	id    uint64
	count uint32
	told  bool
	// Of a dataset of virtual ranks:
	virtual uint32
	state   State // what it was told last
}

// request opens a lease request; serve answers it at the end of the Step.
func (c *Core) request(a *agent, r *LeaseRequest) {
	w := a.byNumber[r.Worker]
	if w == nil {
		c.reply(Reply{To: a.session, Kind: ReplyFence, Worker: r.Worker, Reason: "this worker has not joined"})
		return
	}
	if w.state != running {
		return
	}
	d := c.dataset(r.Dataset)
	if d == nil {
		c.reply(Reply{To: a.session, Kind: ReplyStanding, Request: r.ID, Worker: r.Worker, Dataset: r.Dataset, State: Deleted, Reason: "no such dataset"})
		return
	}
	if w.waiting >= maxOpenRequests {
		c.rejected("worker %d of agent %q has %d open requests", w.number, a.name, w.waiting)
		return
	}
	c.setRate(w, d, r.Rate)
	w.waiting++
	if w.rank.ended {
		w.rank.ended = false
		c.dirtyRank(w.rank)
	}
	if c.gated(w) || w.barred {
		c.parkRequest(d, request{w: w, id: r.ID, count: min(max(r.Count, 1), maxCount), virtual: r.Virtual})
		return
	}
	d.waiting.Push(request{w: w, id: r.ID, count: min(max(r.Count, 1), maxCount), virtual: r.Virtual})
	d.untold++
	c.kick(d)
}

// setRate keeps the rate of w and the dataset's sum.
func (c *Core) setRate(w *worker, d *dataset, rate float64) {
	if !(rate > 0) { // NaN too
		return
	}
	n := int64(min(max(rate, 1), maxRate))
	for i := range w.rates {
		if q := &w.rates[i]; q.ds == d.id {
			d.sumRate += n - q.rate
			q.rate = n
			return
		}
	}
	w.rates = append(w.rates, rateOf{d.id, n})
	d.sumRate += n
	d.rated++
}

func (c *Core) dropRates(w *worker) {
	for _, q := range w.rates {
		if d := c.dataset(q.ds); d != nil {
			d.sumRate -= q.rate
			d.rated--
		}
	}
	w.rates = w.rates[:0]
}

// dropRequests closes the requests of w unanswered.
func (c *Core) dropRequests(w *worker) {
	if w.waiting == 0 {
		return
	}
	for _, d := range c.datasets {
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

func (c *Core) kick(d *dataset) {
	if !d.kicked && !d.removed {
		d.kicked = true
		c.kicked = append(c.kicked, d)
	}
}

// serve grants what can be granted, and tells the others where they stand.
func (c *Core) serve() {
	for i := 0; i < len(c.kicked); i++ {
		d := c.kicked[i]
		if !d.removed {
			c.serveDataset(d)
		}
		d.kicked = false
	}
	clear(c.kicked)
	c.kicked = c.kicked[:0]
}

func (c *Core) serveDataset(d *dataset) {
	if d.opt.VirtualRanks > 0 {
		c.serveVirtual(d)
		return
	}
	// Where order is free, nobody gets what the first one does not get.
	for refused := 0; refused < d.waiting.Len() && c.grants(d); {
		c.nextInLine(d)
		r := &d.waiting.All()[0]
		l := c.carve(d, r.w)
		switch {
		case l != nil:
			refused = 0
			c.grant(l, r.id)
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
	state, reason := c.standing(d)
	if state == End && !d.done {
		d.done = true
		c.report(Report{Kind: ReportDatasetDone, Dataset: d.id, Units: d.total * int64(d.opt.Passes)})
	}
	if d.waiting.Len() == 0 {
		return
	}
	c.tell(d, state, reason)
	if d.waiting.Len() > 0 && c.grants(d) && !d.opt.Strict && d.leases > 0 {
		c.watchSteal(d, max(d.nextScan, c.now))
	}
}

// grants says whether d gives out leases now.
func (c *Core) grants(d *dataset) bool {
	return !d.paused && !d.failed && !c.recovering && !c.genEnded
}

// standing is what a request that can not be granted is told.
func (c *Core) standing(d *dataset) (State, string) {
	switch {
	case d.failed:
		return Failed, d.reason
	case d.partsAll && d.unsettled == 0:
		return End, ""
	case c.recovering:
		return Recovering, "a new master waits for its agents"
	case d.paused:
		return Paused, "the dataset is paused"
	case d.partsAll && d.undrained == 0:
		return Drained, ""
	}
	return Wait, ""
}

// tell sends the standing to requests that were told something else before.
func (c *Core) tell(d *dataset, state State, reason string) {
	if state == d.told && d.untold == 0 {
		return
	}
	again := state != d.told
	d.told = state
	all := d.waiting.All()
	for i := range all {
		if r := &all[i]; again || !r.told {
			r.told = true
			c.reply(Reply{To: r.w.session(), Kind: ReplyStanding, Request: r.id, Worker: r.w.number, Dataset: d.id, State: state, Reason: reason})
		}
	}
	d.untold = 0
	if state == End {
		for d.waiting.Len() > 0 {
			w := d.waiting.Pop().w
			if w.waiting--; w.waiting == 0 && w.leases == nil && !w.rank.ended && w.rank.worker == w {
				w.rank.ended, c.askDue = true, true
				c.dirtyRank(w.rank)
			}
		}
	}
}

// stand tells one request and closes it.
func (c *Core) stand(d *dataset, r request, state State, reason string) {
	r.w.waiting--
	c.reply(Reply{To: r.w.session(), Kind: ReplyStanding, Request: r.id, Worker: r.w.number, Dataset: d.id, State: state, Reason: reason})
}

func (c *Core) grant(l *lease, id uint64) {
	c.stats.Grants++
	ps, p := l.pass, l.pass.p
	lo, hi := c.pieces(l)
	// Written in place: a Reply is too large to copy on the hot path.
	c.fx.Replies = slices.Grow(c.fx.Replies, 1)
	c.fx.Replies = c.fx.Replies[:len(c.fx.Replies)+1]
	r := &c.fx.Replies[len(c.fx.Replies)-1]
	*r = Reply{}
	r.To, r.Kind, r.Request, r.Token, r.Worker = l.w.session(), ReplyGrant, id, l.token, l.w.number
	r.Dataset, r.Partition, r.Identity, r.Pass = p.ds.id, p.no, p.source, ps.n
	r.Segment, r.Start, r.End, r.Tries = l.segment, l.start-l.shift, l.end-l.shift, l.tries.lost()
	r.PieceLo, r.PieceHi = lo, hi
}
