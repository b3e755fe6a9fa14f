package shardsvc

// timerKind says what a timer is about.
type timerKind uint8

const (
	timerSession  timerKind = iota // of an agent
	timerDetached                  // of a worker
	timerStall                     // of a worker
	timerSteal                     // of a dataset
	timerRecovery
	timerAsk
	timerResolve
	timerRestore
	timerPause
	timerRounds
	timerDoubt // only wakes the core: each Step looks at the starters (doubt.go)
)

type timer struct {
	at   Time
	kind timerKind
	of   any    // the agent, worker, holder or dataset that it is for
	cut  uint64 // of timerResolve
}

// timerHeap holds deadlines, the next one first. A deadline that moves later leaves its
// timer in place. So the code that a timer calls looks at the state again and does not
// trust the timer: a timer at 5 s finds that the session was heard at 4 s, and waits until
// 9 s.
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
