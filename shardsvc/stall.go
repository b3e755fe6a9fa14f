package shardsvc

// patience is how long w may hold leases without progress; 0: for ever. If no record is
// there to read, no progress is expected.
func (lg *ledger) patience(w *holder) Time {
	stall := Time(0)
	for l := w.leases; l != nil; l = l.wnext {
		if s := l.pass.p.ds.opt.Stall; s > 0 && l.prefix < l.reach() && (stall == 0 || s < stall) {
			stall = s
		}
	}
	if !w.stepped {
		stall *= 10
	}
	return stall
}

func (lg *ledger) watchStall(w *holder) {
	if w.leases == nil {
		return
	}
	if p := lg.patience(w); p > 0 {
		if at := w.since + p; w.stallAt == 0 || at < w.stallAt {
			w.stallAt = at
			lg.timers.push(timer{at: at, kind: timerStall, of: w})
		}
	}
}

// stalled says whether w has made no progress for as long as it may. at is the deadline
// that has come. If the deadline has moved meanwhile, it is watched again.
//
// A holder whose rows nobody waits for may stand still for as long as it likes: a person
// may be thinking in front of a notebook. Its time counts from when somebody waits. waits:
// it waits for others itself. awaited: others wait for it, though not for its rows.
func (lg *ledger) stalled(w *holder, at Time, waits, awaited bool) bool {
	if w.stallAt != at {
		return false
	}
	w.stallAt = 0
	if w.leases == nil || w.state != running {
		return false
	}
	p, stands := lg.patience(w), w.paused || w.still || waits
	if p > 0 && !stands && lg.now >= w.since+p && !awaited && !lg.othersWait(w) {
		w.unwanted = lg.now
		w.stallAt = lg.now + max(p/10, 1) // somebody may begin to wait
		lg.timers.push(timer{at: w.stallAt, kind: timerStall, of: w})
		return false
	}
	since := max(w.since, w.unwanted)
	if p > 0 && !stands && lg.now >= since+p {
		return true
	}
	if p > 0 {
		w.stallAt = max(since+p, lg.now+1)
		if stands {
			w.stallAt = lg.now + p
		}
		lg.timers.push(timer{at: w.stallAt, kind: timerStall, of: w})
	}
	return false
}

// othersWait reports whether w holds leases of a dataset for which another holder has an
// open request. All wait for virtual ranks: none goes on alone.
func (lg *ledger) othersWait(w *holder) bool {
	for l := w.leases; l != nil; l = l.wnext {
		d := l.pass.p.ds
		if d.opt.VirtualRanks > 0 {
			return true
		}
		for _, r := range d.waiting.All() {
			if r.w != w {
				return true
			}
		}
	}
	return false
}
