package shardsvc

// groupKind is what the group asks of the job's model kind, and by it of the
// checkpoints above: one for each kind (shared.go, replicated.go, private.go).
type groupKind interface {
	// takesOlder says whether a process of an older term is taken in although another
	// one has its rank: what it has stepped is in the model.
	takesOlder() bool
	// enter says whether a process may join, makes room for it, and goes back for it
	// where that is decided before it is in. at: when it was made. A refusal is told.
	enter(a *agent, r *rank, j *Join, newcomer bool, at made) (again comesAgain, ok bool)
	// entered says that w is in, and was not told yet. first: its rank is new in the
	// generation.
	entered(w *worker, j *Join, first bool) (again comesAgain)
	// joined says that w was told. newcomer: it is another process than before.
	joined(w *worker, newcomer bool)
	// counts says whether the steps that w reports are those of the model.
	counts(w *worker) bool
	// leaveIsEnd says whether a process that leaves is lost, although it may still run.
	leaveIsEnd() bool
	// ending says that w was told to end.
	ending(w *worker, reason string)
	// dropped says that w is out of the group.
	dropped(w *worker)
	// lost says that w's process is gone or given up; newest: its rank has no other.
	lost(w *worker, newest bool, reason string)
	// unheard says which ranks' processes did not come back in a new term.
	unheard(gone []*rank)
	// recovered says that all who are there in a new term are known.
	recovered()
	// generationEnded says so before its members are dropped.
	generationEnded(reason string)
}
