package shardsvc

// rankPast is what the checkpoints know of a rank.
type rankPast struct {
	way    wayBack
	lost   bool     // private: its process is gone, and its acks have still to become pending again
	choice uint64   // private: what it was answered when it restored
	base   *keptCut // private: what it restored or bound last; nil: the start
}

// wayBack is where a rank's process stands between its past and its first rows.
type wayBack uint8

const (
	noWay      wayBack = iota // it need not go back
	mustGoBack                // it gets no rows before it restored
	wentBack                  // it restored, in this generation or incarnation
)

// past of a rank.
func (ck *checkpoints) past(r *rank) *rankPast {
	if r.index < 0 { // nobody ever joined as it
		return &rankPast{}
	}
	for len(ck.pasts) <= r.index {
		ck.pasts = append(ck.pasts, &rankPast{})
	}
	return ck.pasts[r.index]
}

// workerPast is what the checkpoints know of a process while it lives.
type workerPast struct {
	undecided Time     // until then it is expected to repeat its restore; 0: it is not
	paused    uint64   // the cut of the pause that is on, if the process has said that it yields nothing
	tells     bool     // its restore said what it can read
	readable  []uint64 // cuts, in memory
	barred    bool     // it joined during the pause, and gets nothing until the pause ends
}

// at is what is known of w.
func (ck *checkpoints) at(w *worker) *workerPast {
	p := ck.procs[w]
	if p == nil {
		p = &workerPast{}
		ck.procs[w] = p
	}
	return p
}

// loadPasts takes what was stored about restores of the job and of its ranks.
func (ck *checkpoints) loadPasts(l *loading) {
	if v := l.job; v != nil {
		ck.cutOrder, ck.phase, ck.choice, ck.restored = v.cuts, v.phase, v.choice, v.restored
	}
	for _, s := range l.ranks {
		past := ck.past(ck.group.rankOf(s.key.rank))
		*past = rankPast{lost: s.val.lost, choice: s.val.choice}
		switch {
		case s.val.called:
			past.way = wentBack
		case s.val.must:
			ck.mustGoBack(past)
		}
	}
}

// mustGoBack keeps a rank from all rows until it has restored.
func (ck *checkpoints) mustGoBack(past *rankPast) { past.way, ck.must = mustGoBack, true }

// addTo adds what is stored about restores of the job.
func (ck *checkpoints) addTo(v *jobValue) {
	v.cuts, v.phase, v.choice, v.restored = ck.cutOrder, ck.phase, ck.choice, ck.restored
}

// start goes on with what the term before had begun.
func (ck *checkpoints) start() {
	for _, r := range ck.group.everyRank() {
		if ck.past(r).lost {
			ck.rankGone(r)
		}
	}
	if ck.phase == restoreOpen || ck.phase == restoreWaits {
		ck.watchRestore()
	}
}

// putRank encodes all that is known of a rank.
func (ck *checkpoints) putRank(fx *Effects, a *account) {
	r := ck.group.rankOf(a.no)
	past := ck.past(r)
	v := r.value()
	v.must, v.called, v.lost, v.choice = past.way == mustGoBack, past.way == wentBack, past.lost, past.choice
	if past.base != nil {
		v.base = past.base.id
	}
	fx.put(Set, func(b []byte) []byte { return appendNumbers(b, keyRank, a.no) }, v.append)
}
