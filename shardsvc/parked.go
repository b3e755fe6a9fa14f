package shardsvc

import "slices"

// parked is a request of a process that is kept from all rows.
type parked struct {
	ds DatasetID
	r  request
}

func (lg *ledger) parkRequest(d *dataset, r request, s standing) {
	r.told = true
	r.w.parked = append(r.w.parked, parked{d.id, r})
	lg.reply(Reply{To: r.w.session(), Kind: ReplyStanding, Request: r.id, Worker: r.w.number, Dataset: d.id, State: s.why.state(), Reason: s.reason})
}

// park takes the requests of processes that are kept from rows now out of the queues.
func (lg *ledger) park() {
	for _, d := range lg.datasets {
		if d == nil || d.waiting.Len() == 0 {
			continue
		}
		var out []request
		d.waiting.Keep(func(r *request) bool {
			if !lg.standing(d, r).why.parks() {
				return true
			}
			if !r.told {
				d.untold--
			}
			out = append(out, *r)
			return false
		})
		for i := range out {
			lg.parkRequest(d, out[i], lg.standing(d, &out[i]))
		}
	}
}

// unpark puts the requests of processes that may have rows again back into the queues.
func (lg *ledger) unpark() {
	for _, w := range lg.holders {
		if len(w.parked) == 0 || lg.above.standingOf(w).why.parks() {
			continue
		}
		for _, k := range w.parked {
			d := lg.dataset(k.ds)
			if d == nil {
				w.waiting--
				continue
			}
			k.r.told = false
			d.waiting.Push(k.r)
			d.untold++
			lg.kick(d)
		}
		w.parked = nil
	}
}

// dropParked closes the parked requests for a dataset that is deleted.
func (lg *ledger) dropParked(d *dataset, reason string) {
	for _, w := range lg.holders {
		w.parked = slices.DeleteFunc(w.parked, func(k parked) bool {
			if k.ds == d.id {
				lg.deleted(d, k.r, reason)
			}
			return k.ds == d.id
		})
	}
}
