package shardsvc

// timerKind says what a timer is about.
type timerKind uint8

const (
	timerSession  timerKind = iota // agent
	timerDetached                  // worker
	timerStall                     // worker
	timerSteal                     // dataset
	timerRecovery
	timerAsk
	timerSettle
	timerRestore
	timerYields
	timerDoubt // its Step looks again
)

type timer struct {
	at   Time
	kind timerKind
	a    *agent
	w    *worker
	d    *dataset
	cut  uint64
}

// timerHeap holds deadlines, the next one first. A deadline that moved is found
// out when its timer comes up: what a timer does looks at the state, not at it.
type timerHeap []timer

func (h timerHeap) next() Time {
	if len(h) == 0 {
		return Never
	}
	return h[0].at
}

func (h *timerHeap) push(t timer) {
	*h = append(*h, t)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if s[up].at <= s[i].at {
			break
		}
		s[up], s[i] = s[i], s[up]
		i = up
	}
}

func (h *timerHeap) pop() timer {
	s := *h
	t := s[0]
	n := len(s) - 1
	s[0] = s[n]
	s[n] = timer{}
	s = s[:n]
	*h = s
	for i := 0; ; {
		low := 2*i + 1
		if low >= n {
			break
		}
		if low+1 < n && s[low+1].at < s[low].at {
			low++
		}
		if s[i].at <= s[low].at {
			break
		}
		s[i], s[low] = s[low], s[i]
		i = low
	}
	return t
}

// tick lets time pass: only here do sessions expire, because only here the
// inbox is known to be drained.
func (c *Core) tick() {
	for c.timers.next() <= c.now {
		switch t := c.timers.pop(); t.kind {
		case timerSession:
			c.sessionDue(t.a)
		case timerDetached:
			c.detachedDue(t.w)
		case timerStall:
			c.stallDue(t.w, t.at)
		case timerSteal:
			if t.d.scanAt == t.at && !t.d.removed {
				t.d.scanAt = 0
				c.scan(t.d)
			}
		case timerRecovery:
			c.recoveryDue()
		case timerAsk:
			c.askTimeout()
		case timerSettle:
			c.settleCut(t.cut, false, "its storage was not seen in time")
		case timerRestore:
			c.restoreDue()
		case timerYields:
			c.holdTimeout()
		case timerDoubt:
		}
	}
}

// watchSteal wants a scan of d at at. One that is due already is made by the
// next Tick, which comes at once.
func (c *Core) watchSteal(d *dataset, at Time) {
	if d.scanAt != 0 && d.scanAt <= at {
		return
	}
	d.scanAt = max(at, 1)
	c.timers.push(timer{at: d.scanAt, kind: timerSteal, d: d})
}

// patience is how long w may hold leases without progress; 0: forever. Where
// nothing is there to read, none is expected.
func (c *Core) patience(w *worker) Time {
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

func (c *Core) watchStall(w *worker) {
	if w.leases == nil {
		return
	}
	if p := c.patience(w); p > 0 {
		if at := w.since + p; w.stallAt == 0 || at < w.stallAt {
			w.stallAt = at
			c.timers.push(timer{at: at, kind: timerStall, w: w})
		}
	}
}

func (c *Core) stallDue(w *worker, at Time) {
	if w.stallAt != at {
		return
	}
	w.stallAt = 0
	if w.gone || w.leases == nil || w.state != running {
		return
	}
	if p, stands := c.patience(w), w.paused || w.held != 0; p == 0 || stands || c.now < w.since+p {
		if p > 0 {
			w.stallAt = max(w.since+p, c.now+1)
			if stands {
				w.stallAt = c.now + p
			}
			c.timers.push(timer{at: w.stallAt, kind: timerStall, w: w})
		}
		return
	}
	c.report(Report{Kind: ReportStalled, Rank: w.rank.no, Agent: w.agent.name, Reason: "no step while holding leases"})
	w.stalled = w.why == ""
	c.endWorker(w, "stall: it holds leases and made no step")
}
