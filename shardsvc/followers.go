package shardsvc

// When a trainer fails, others of its job may end because of it: a collective aborts them,
// or they are ended. Only the one that failed first may have been crashed by a record.
//
// A process is a follower if another one failed before it, while it was there, and it has
// stepped nothing since. Example: rank 1 crashes at 10.0 s. Rank 0 aborts at 10.2 s: it is a
// follower. Rank 2 steps on, and crashes at 15 s: it has failed by itself. The new process of
// rank 1 joins at 10.5 s, and crashes at 10.8 s: it has failed by itself, too.
//
// A follower that would have crashed by itself crashes again with the same record.

// settles is how long after a failure we may still hear of a step that was made before it.
const settles = Second

// failures counts the processes that have failed in this term: that have ended without
// saying goodbye, or were given up.
type failures struct {
	count int
	last  Time
}

// fails counts the failure of w. follows says that it failed after another one.
func (gr *group) fails(w *worker) (follows bool) {
	if w.failed {
		return w.follows
	}
	w.failed, w.follows = true, w.outlived != gr.failures.count
	gr.failures.count++
	gr.failures.last = gr.now
	if !w.follows {
		w.outlived = gr.failures.count // if it lives on after all, that was its own failure
	}
	for _, x := range gr.workers {
		// x has outlived every failure before this one. If w follows one of those, or if x
		// is the new process of w's rank, then the failure of w is no reason for x to fail:
		// x has outlived that one, too.
		if x != w && x.outlived == gr.failures.count-1 && (w.follows || x.rank == w.rank) {
			x.outlived++
		}
	}
	return w.follows
}

// goesOn notes that w has made a step.
func (gr *group) goesOn(w *worker) {
	if w.failed = false; gr.now >= gr.failures.last+settles {
		w.outlived = gr.failures.count
	}
}
