package shardsvc

// imbalanceAfter is how long a group may stand still before that is reported.
const imbalanceAfter = 10 * Second

// Imbalance says that a rank of a group waits for rows while another one holds some, and
// that neither has made progress for a while. So a group that trains in step hangs: one
// rank is in all-reduce, the other one waits for data that it cannot get. Ranks of a
// replicated model do train in step. Other ranks may not, so for them it is reported only
// once the input is listed to its end: before that, both ranks may wait for new rows.
type Imbalance struct {
	Idle, Busy uint32 // ranks
	Leases     int    // of Busy
	Still      Time   // how long nobody has made progress
}

// Imbalance of a dataset that is read without rounds; nil: there is none.
func (gr *group) Imbalance(id DatasetID) *Imbalance {
	d := gr.ledger.dataset(id)
	if d == nil || d.state != giving || !gr.model.inStep && d.incomplete > 0 {
		return nil
	}
	for _, s := range gr.series {
		if s.ds == id && s.generation == gr.generation {
			return nil
		}
	}
	var last Time // the last progress of the group
	var holds *worker
	for _, w := range gr.workers {
		if w.state != running || w.still || w.paused {
			return nil // a save, a restore, or a process that is leaving: somebody moves
		}
		last = max(last, w.since)
		if w.busy() && (holds == nil || w.leaseCount > holds.leaseCount) {
			holds = w
		}
	}
	if holds == nil || gr.now < last+imbalanceAfter {
		return nil
	}
	for _, q := range d.waiting.All() {
		if q.w.leases == nil && q.w.state == running {
			return &Imbalance{q.w.account.no, holds.rank.no, holds.leaseCount, gr.now - last}
		}
	}
	return nil
}
