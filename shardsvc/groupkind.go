package shardsvc

// aboveGroup is everything that the group asks of the room above it, whatever the job's model
// kind is.
type aboveGroup interface {
	// joined says that w has joined and was told so. newcomer says that it is another
	// process of its rank than before.
	joined(w *worker, newcomer bool)
	// counts says whether the steps that w reports are those of the model.
	counts(w *worker) bool
	// ending says that w was told to end.
	ending(w *worker, reason string)
	// dropped says that w is out of the group.
	dropped(w *worker)
	// allKnown says that a new term knows all processes that are there.
	allKnown()
	// decided says whether it is decided what the processes of the generation go back to.
	// After that, none of them makes rows pending again.
	decided() bool
	// generationEnded says that the generation ends; its members are dropped after that.
	generationEnded(reason string)
}

// groupKind is what the group asks of the model kind. There is one for each kind: shared.go,
// replicated.go, private.go.
type groupKind interface {
	// enter says whether a process may join, and makes room for it. If it is clear already
	// what the process goes back to, enter goes back. at is when the process was made.
	// enter itself answers a refusal.
	enter(a *agent, r *rank, j *Join, newcomer bool, at made) (again comesAgain, ok bool)
	// entered says that w has joined and was not told yet. first says that its rank is new
	// in the generation.
	entered(w *worker, j *Join, first bool) (again comesAgain)
	// lost says that the newest process of a rank is gone or given up.
	lost(r *rank, why string)
}
