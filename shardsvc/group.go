package shardsvc

import "slices"

// group knows the agents and their sessions, the trainer processes, the ranks, and their
// generation.
type group struct {
	*turn
	ledger *ledger
	above  aboveGroup
	kind   groupKind

	began     Time   // this term, on the shell's clock
	worldSize uint32 // of the generation
	topStep   int64  // the highest one reported in the generation
	over      bool   // nobody of the generation before was left when this one came

	agents   []*agent // in order of arrival
	byName   map[string]*agent
	sessions map[Session]*agent
	workers  []*worker // in order of arrival
	ranks    []*rank   // in order of arrival
	byRank   map[uint32]*rank
	rejoined []*worker  // in the message at hand
	series   []*series  // of the generation, in order of arrival
	roundsAt Time       // when they are looked at; 0: no timer is set
	waiting  []newcomer // until a new term has recovered, in order of arrival
	failures failures

	dirtyAgents []*agent
}

func (gr *group) init(t *turn, lg *ledger) {
	*gr = group{turn: t, ledger: lg, byName: map[string]*agent{}, sessions: map[Session]*agent{}, byRank: map[uint32]*rank{}}
}

// standUnder says which room stands above the group, and what kind the job's model is.
func (gr *group) standUnder(a aboveGroup, k groupKind) { gr.above, gr.kind = a, k }

// processes are the trainer processes in order of arrival. The caller changes nothing.
func (gr *group) processes() []*worker { return gr.workers }

// everyRank gives the ranks that are known, in order of arrival. The caller changes nothing.
func (gr *group) everyRank() []*rank { return gr.ranks }

// member is a rank that has joined the generation; nil: it has not.
func (gr *group) member(no uint32) *rank {
	if r := gr.byRank[no]; r != nil && r.generation == gr.generation {
		return r
	}
	return nil
}

// world is how many ranks the generation has.
func (gr *group) world() uint32 { return gr.worldSize }

// highestStep is the highest one that was reported in the generation.
func (gr *group) highestStep() int64 { return gr.topStep }

// begunAnew says whether nobody of the generation before was left when this one came.
func (gr *group) begunAnew() bool { return gr.over }

// load makes the group of what was stored.
func (gr *group) load(l *loading) {
	if l.job != nil {
		gr.worldSize = l.job.worldSize
	}
	for _, s := range l.ranks {
		r := gr.rankOf(s.key.rank)
		r.incarnation, r.generation = s.val.incarnation, s.val.generation
		switch r.unheard = s.val.others; {
		case s.val.fenced:
			r.process = givenUp
		case s.val.attached:
			r.process = present
		}
		if r.generation == gr.generation {
			gr.topStep = max(gr.topStep, r.lastStep())
		}
	}
	for _, s := range l.agents {
		a := gr.newAgent(s.key.name, s.val.incarnation)
		a.superseded, a.known = s.val.superseded, true
	}
}

// addTo adds what is stored of the group to the job.
func (gr *group) addTo(v *jobValue) { v.worldSize = gr.worldSize }

// start says whether a new term waits for agents or processes.
func (gr *group) start() (waits bool) {
	gr.began = gr.shell
	for _, a := range gr.agents {
		a.lastHeard = gr.now
		gr.timers.push(timer{at: gr.now + gr.cfg.SessionTTL, kind: timerSession, of: a})
	}
	return len(gr.agents) > 0 || slices.ContainsFunc(gr.ranks, func(r *rank) bool { return r.process == present || r.others() })
}

// flush encodes the agents that have changed.
func (gr *group) flush(fx *Effects) {
	for _, a := range gr.dirtyAgents {
		if a.dirty = false; a.life != agentGone {
			v := agentValue{a.incarnation, gr.term, a.superseded}
			fx.put(Set, func(b []byte) []byte { return append(append(b, keyAgent), a.name...) }, v.append)
		}
	}
	clear(gr.dirtyAgents)
	gr.dirtyAgents = gr.dirtyAgents[:0]
}
