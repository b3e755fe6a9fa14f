package shardsvc

// checkpoints knows which records are in which model: the kept cuts, the processes that ask
// for a cut, and those that go back to one.
type checkpoints struct {
	*turn
	ledger *ledger
	group  *group
	kind   kind

	pasts []*rankPast // by index of the rank
	must  bool        // some rank must go back; it may stay true for a while after the last one did
	procs map[*worker]*workerPast

	cuts     []*keptCut   // in order of cutOrder
	cutOrder uint64       // of the newest
	removed  []removedCut // that were given up last, in order
	asks     []*ask       // that wait, in order of arrival
	askDue   bool         // something happened that may complete one

	pause     *yieldPause // nil: none is on
	pauseDue  bool        // something happened that may complete it
	lastPause endedPause

	phase     restorePhase
	choice    uint64 // of the generation: the cut that it went back to; 0: the start
	restored  int64  // its step
	restoreBy Time   // deadline of the phase
	restoring uint32 // no rank below it is missing

	recoveredAt Time      // when this term knew all processes that were there; 0: from its start
	starters    []starter // in order of arrival
}

func (ck *checkpoints) init(t *turn, lg *ledger, gr *group) {
	*ck = checkpoints{turn: t, ledger: lg, group: gr, procs: map[*worker]*workerPast{}}
	lg.standUnder(ck)
	ck.kind = newKind(ck)
	gr.standUnder(ck, ck.kind)
}

// joined implements aboveGroup.
func (ck *checkpoints) joined(w *worker, newcomer bool) {
	ck.joinedInPause(w, newcomer)
	ck.checkStarters()
}

// counts implements aboveGroup: until w has restored, its steps belong to no model.
func (ck *checkpoints) counts(w *worker) bool {
	return ck.past(w.rank).way == wentBack || !ck.gated(w)
}

// allKnown implements aboveGroup.
func (ck *checkpoints) allKnown() {
	ck.pauseDue, ck.askDue, ck.recoveredAt = true, true, ck.now
}

// decided implements aboveGroup.
func (ck *checkpoints) decided() bool { return ck.phase == restoreDone || ck.noCuts() != "" }

// generationEnded implements aboveGroup.
func (ck *checkpoints) generationEnded(reason string) { ck.dropAsks(nil, reason) }
