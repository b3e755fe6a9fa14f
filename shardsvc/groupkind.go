package shardsvc

// groupKind is everything that the group asks of the job's model kind, and through it of
// the checkpoints above. There is one for each kind: shared.go, replicated.go, private.go.
type groupKind interface {
	// takesOlder says whether a process of an older term is taken in although another
	// process has its rank, because its steps are in the model.
	takesOlder() bool
	// enter says whether a process may join, and makes room for it. If it is clear already
	// what the process goes back to, enter goes back. at is when the process was made.
	// enter itself answers a refusal.
	enter(a *agent, r *rank, j *Join, newcomer bool, at made) (again comesAgain, ok bool)
	// entered says that w is in; w does not know it yet. first says that its rank is new
	// in the generation.
	entered(w *worker, j *Join, first bool) (again comesAgain)
	// joined says that w knows it now. newcomer says that it is another process than
	// before.
	joined(w *worker, newcomer bool)
	// counts says whether the steps that w reports are those of the model.
	counts(w *worker) bool
	// leaveIsEnd says whether a process that leaves is lost, although it may still run.
	leaveIsEnd() bool
	// keepsRows says why the rows of w, which may run, cannot be given to others; empty:
	// they can, because what w does with them from now on reaches no checkpoint.
	keepsRows(w *worker) string
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
	// decided says whether the processes of the generation are given what they go back to, so
	// that none of them makes rows pending again.
	decided() bool
	// generationEnded says that the generation ends; its members are dropped after that.
	generationEnded(reason string)
}
