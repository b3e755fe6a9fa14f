package shardsvc

import "slices"

// parked is a request of a gated worker.
type parked struct {
	ds DatasetID
	r  request
}

func (lg *ledger) parkRequest(d *dataset, r request, state State, reason string) {
	r.told = true
	r.w.parked = append(r.w.parked, parked{d.id, r})
	lg.reply(Reply{To: r.w.session(), Kind: ReplyStanding, Request: r.id, Worker: r.w.number, Dataset: d.id, State: state, Reason: reason})
}

// park takes the requests of workers that are gated now out of the queues.
func (lg *ledger) park() {
	for _, d := range lg.datasets {
		if d == nil || d.waiting.Len() == 0 {
			continue
		}
		var out []request
		d.waiting.Keep(func(r *request) bool {
			if ok, _, _ := lg.above.mayGet(r.w); ok {
				return true
			}
			if !r.told {
				d.untold--
			}
			out = append(out, *r)
			return false
		})
		for _, r := range out {
			_, state, reason := lg.above.mayGet(r.w)
			lg.parkRequest(d, r, state, reason)
		}
	}
}

// unpark lets the requests of w, or of all that are not gated any more, go on.
func (lg *ledger) unpark() {
	for _, w := range lg.holders {
		if len(w.parked) == 0 {
			continue
		}
		if ok, _, _ := lg.above.mayGet(w); !ok {
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
				lg.stand(d, k.r, Deleted, reason)
			}
			return k.ds == d.id
		})
	}
}
