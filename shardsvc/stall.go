package shardsvc

// patience is how long w may hold leases without progress; 0: forever. Where
// nothing is there to read, none is expected.
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
