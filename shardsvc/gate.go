package shardsvc

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// Who must restore, or wait for others to, gets nothing before: its requests are
// parked, and told so.

// gated: w gets nothing now.
func (c *Core) gated(w *worker) bool {
	switch {
	case c.phase == restoreOpen || c.phase == restoreWaits:
		return true
	case c.cfg.Model == Replicated:
		return false
	}
	return w.rank.must && !w.rank.called
}

// gate says what a gated worker waits for.
func (c *Core) gate(w *worker) string {
	switch {
	case c.phase == restoreWaits && w.rank.called:
		return fmt.Sprintf("it waits until all %d ranks have restored", c.worldSize)
	case c.phase == restoreWaits:
		return "the other ranks restore: call restore or load_state_dict too, or say resume=start"
	case w.asking != nil && w.asking.restore.Mode == RestoreStart:
		return "whether others still train the model is not known yet: it begins when they are given up, or joins them when they are heard of"
	}
	return "the job has acks or checkpoints: call restore or load_state_dict, or say resume=start"
}

func (c *Core) parkRequest(d *dataset, r request) {
	r.told = true
	r.w.parked = append(r.w.parked, parked{d.id, r})
	state, reason := Restoring, ""
	if c.gated(r.w) {
		reason = c.gate(r.w)
	} else {
		state, reason = Wait, c.holdReason()
	}
	c.reply(Reply{To: r.w.session(), Kind: ReplyStanding, Request: r.id, Worker: r.w.number, Dataset: d.id, State: state, Reason: reason})
}

// parked is a request of a gated worker.
type parked struct {
	ds DatasetID
	r  request
}

// park takes the requests of workers that are gated now out of the queues.
func (c *Core) park() {
	for _, d := range c.datasets {
		if d == nil || d.waiting.Len() == 0 {
			continue
		}
		var out []request
		d.waiting.Keep(func(r *request) bool {
			if !c.gated(r.w) {
				return true
			}
			if !r.told {
				d.untold--
			}
			out = append(out, *r)
			return false
		})
		for _, r := range out {
			c.parkRequest(d, r)
		}
	}
}

// unpark lets the requests of w, or of all that are not gated any more, go on.
func (c *Core) unpark() {
	for _, w := range c.workers {
		if len(w.parked) == 0 || c.gated(w) || w.barred {
			continue
		}
		for _, k := range w.parked {
			d := c.dataset(k.ds)
			if d == nil {
				w.waiting--
				continue
			}
			k.r.told = false
			d.waiting.Push(k.r)
			d.untold++
			c.kick(d)
		}
		w.parked = nil
	}
}

// dropParked closes the parked requests for a dataset that is deleted.
func (c *Core) dropParked(d *dataset, reason string) {
	for _, w := range c.workers {
		w.parked = slices.DeleteFunc(w.parked, func(k parked) bool {
			if k.ds == d.id {
				c.stand(d, k.r, Deleted, reason)
			}
			return k.ds == d.id
		})
	}
}

// hasPast: something is in a model.
func (c *Core) hasPast() bool {
	if c.hasBound() {
		return true
	}
	for _, p := range c.parts {
		if p == nil {
			continue
		}
		if p.units[line.Acked] > 0 || slices.ContainsFunc(p.passes, func(ps *pass) bool { return ps.kinds[line.Acked] > 0 }) {
			return true
		}
	}
	return false
}

// keeps: a cut is kept that the group, or rank r, may go back to.
func (c *Core) keeps(r *rank) bool {
	return slices.ContainsFunc(c.cuts, func(k *keptCut) bool {
		return k.state < CutVoided && (k.rank == cut.Group || k.rank == int64(r.no))
	})
}
