package shardsvc

// group knows who is there: agents and their sessions, trainer processes, ranks and
// their generation.
type group struct {
	*turn
	ledger *ledger
	kind   groupKind

	worldSize uint32 // of the generation
	topStep   int64  // the highest one reported in the generation

	agents   []*agent // in order of arrival
	byName   map[string]*agent
	sessions map[Session]*agent
	workers  []*worker // in order of arrival
	ranks    []*rank   // in order of arrival
	byRank   map[uint32]*rank
	rejoined []*worker // in the message at hand

	dirtyAgents []*agent
}

func (gr *group) init(t *turn, lg *ledger) {
	*gr = group{turn: t, ledger: lg, byName: map[string]*agent{}, sessions: map[Session]*agent{}, byRank: map[uint32]*rank{}}
}
