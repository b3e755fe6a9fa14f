package shardsvc

import "github.com/headrace/headrace/shardsvc/line"

// With on_crash: isolate, a record that crashes its trainer is found and excluded. When a
// trainer crashes, the records that it had in hand and had not stepped are suspect, unless
// another trainer had failed before it (followers.go). They are handed out again as batches
// of one record, each alone in its trainer's hands. A record that crashes two trainers that
// way is excluded, by a reader that reports it as bad with its bytes.
//
// The suspicion of a range is a part of its tries: it is durable, it follows the range
// through leases, and it ends when the range is settled. Example: a trainer crashes with
// [100, 200) in hand: all of it is suspect. Another one crashes with the record [140, 150)
// alone in hand, and so does a third: [140, 150) is excluded, and the rest is no longer
// suspect.

// BadCrash is the kind of a bad record that crashed its trainers.
const BadCrash = "crash"

func (t tries) suspicion() Suspicion { return Suspicion(t >> suspicionAt) }

func (t tries) with(s Suspicion) tries { return t&^(3<<suspicionAt) | tries(s)<<suspicionAt }

// told is what a holder needs to know: read the records one by one, or exclude the record.
func (s Suspicion) told() Suspicion {
	if s == FailedAlone {
		return Suspected
	}
	return s
}

// after is the suspicion after one more crash.
func (s Suspicion) after(alone bool) Suspicion {
	if alone {
		return min(max(s, Suspected)+1, Convicted)
	}
	return max(s, Suspected)
}

// suspect handles the crash of a process. The records that it had in hand are pending again.
func (lg *ledger) suspect(c *Crash) {
	for i := range c.Suspects {
		s := &c.Suspects[i]
		p := lg.partition(s.Partition)
		if p == nil || p.ds.id != s.Dataset || !p.ds.opt.Isolate || s.Pass < p.folded || s.Pass >= p.begun() {
			continue
		}
		ps, at := p.passes[s.Pass-p.folded], line.Place{Segment: s.Segment, Offset: s.Start}
		if p.ds.opt.Shuffle {
			at.Segment = 0
		}
		start, ok1 := ps.OnLine(at)
		at.Offset = s.End
		end, ok2 := ps.OnLine(at)
		if ok1 && ok2 && start < end {
			lg.suspectPending(ps, start, end, func(t tries) tries { return t.with(t.suspicion().after(c.Alone)) })
			lg.changed(p)
		}
	}
}

// suspectPending changes the suspicion of the pending parts of [start, end).
func (lg *ledger) suspectPending(ps *pass, start, end int64, change func(tries) tries) {
	i, j := ps.pending.Overlap(start, end)
	for _, s := range append(line.Map(nil), ps.pending[i:j]...) {
		from, to, t := max(s.Start, start), min(s.End, end), change(tries(s.Val))
		lg.setTries(ps, from, to, t)
		ps.pending.Set(from, to, uint32(t))
	}
}

// clearSuspects ends the suspicion of the pending ranges of a pass, except for those that failed
// alone: the record that crashed the trainers was found.
func (lg *ledger) clearSuspects(ps *pass) {
	lg.suspectPending(ps, 0, ps.frontier, func(t tries) tries {
		if t.suspicion() == Suspected {
			return t.with(NoSuspicion)
		}
		return t
	})
}
