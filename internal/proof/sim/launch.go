package sim

import "slices"

// slot is one rank of a shared or private job, and its processes.
type slot struct {
	rank uint32
	cur  *trainer
	done bool

	rewound Time // its model was taken back then: a process that ran at that time is fenced off
	starts  bool // its next process does not restore
}

// group is one generation of a replicated job. Its members step together.
type group struct {
	w        *World
	size     int
	members  []*trainer
	model    *model
	step     int64
	here     []arrival
	left     int    // members that ended with success
	restored *model // the model to which it has gone back
	choice   uint64
	began    uint32 // the generation in which it began
	broken   bool
	next     bool // the next group is planned
	starts   bool // it does not restore
	rewound  bool // a person went back to a checkpoint while it ran
	allEnded bool // bit_exact: in the last step no member had a batch
}

type arrival struct {
	t *trainer
	r *reader
	k uint32
}

func (w *World) worldOf(t *trainer) int {
	if t.group != nil {
		return t.group.size
	}
	return len(w.slots)
}

func (w *World) modelFor(t *trainer) *model {
	switch {
	case w.plan.model == shared:
		return w.model
	case t.group != nil:
		return t.group.model
	}
	return w.newModel()
}

func (w *World) launch() {
	if w.plan.model == replicated {
		w.startGroup()
		return
	}
	for r := range w.plan.ranks {
		s := &slot{rank: uint32(r)}
		w.slots = append(w.slots, s)
		s.start(w)
	}
}

func (s *slot) start(w *World) {
	if w.plan.model == shared && !w.served && s.rank > 0 { // rank 0 must bring the model back first
		w.at(w.now+w.time(50*millisecond, 300*millisecond), func() { s.start(w) })
		return
	}
	s.cur = w.startTrainer(s, nil, s.rank, pick(w.dice, w.nodes))
}

// giveUp: records that a rank has in its model and in no checkpoint become pending again. Its process may
// have ended with success before the master heard of it. The launcher sees that the job is not done, and
// starts the rank again.
func (w *World) giveUp(rank uint32) {
	if w.plan.model != private {
		return
	}
	s := w.slots[rank]
	if t := s.cur; t.alive || t.finished {
		t.givenUp = t.generation != 0 && t.ready // else the master meant the process before
	}
	w.again(s)
}

func (w *World) again(s *slot) {
	if s.done && s.cur.givenUp {
		s.done = false
		w.at(w.now+w.time(20*millisecond, 2*second), func() { s.start(w) })
	}
}

func (w *World) startGroup() {
	g := &group{w: w, size: w.of(1, w.plan.ranks), model: w.newModel(), starts: w.groupStarts}
	w.groupStarts = false
	w.group = g
	w.tracef("launcher", "starts a group of %d", g.size)
	for r := range g.size {
		g.members = append(g.members, w.startTrainer(nil, g, uint32(r), pick(w.dice, w.nodes)))
	}
}

// trainerDown tells the launcher how a process ended.
func (w *World) trainerDown(t *trainer) {
	if !t.finished {
		w.crashes++
	}
	if t.group != nil {
		t.group.down(t)
		return
	}
	s := t.slot
	if s.cur != t {
		return
	}
	if t.finished {
		s.done = true
		for _, o := range w.trainers { // older processes that still run
			if o.slot == s {
				o.kill("its rank has ended with success")
			}
		}
		w.again(s)
		return
	}
	away := w.time(20*millisecond, 2*second)
	if w.calm == 0 && w.oneIn(6) { // sometimes there is no node for it
		away += w.time(0, 10*second)
	}
	w.at(w.now+away, func() {
		if s.cur == t {
			t.persistLeft()
			s.start(w)
		}
	})
}

// givenUp reports whether a master has given up a process of the group.
func (g *group) givenUp() bool {
	return slices.ContainsFunc(g.w.everybody, func(t *trainer) bool { return t.group == g && t.lost > 0 })
}

// down ends the group, because one member has failed.
func (g *group) down(t *trainer) {
	w := g.w
	if t.finished {
		g.left++
		if w.plan.rounds {
			t.judgeLast()
		}
		g.meet()
		// All members may end with success before they hear that a person went back to a checkpoint. Or a new
		// master has given them up, and has not dropped the rest that the old one had dropped. The launcher
		// sees that the job is not done, and starts the group again.
		if (g.rewound || w.plan.drops && g.givenUp()) && g.left == g.size && w.group == g {
			g.next = true
			w.at(w.now+w.time(20*millisecond, 2*second), w.startGroup)
			return
		}
	} else if !g.broken {
		g.broken = true
		for _, m := range g.members {
			late := w.time(0, 300*millisecond)
			if w.calm == 0 && w.oneIn(10) {
				late = w.time(0, 3*second) // the launcher cannot reach its node for a while
			}
			w.at(w.now+late, func() { m.process.kill("the group starts again") })
		}
	}
	if !g.broken || g.next || w.group != g {
		return
	}
	for _, m := range g.members {
		if m.alive && w.calm > 0 || m.alive && !w.oneIn(4) {
			return
		}
	}
	g.next = true
	w.at(w.now+w.time(20*millisecond, 2*second), func() {
		g.members[0].persistLeft()
		w.startGroup()
	})
}

// arrive is the all-reduce: when all members have arrived, the step is in every member's model.
func (g *group) arrive(t *trainer, r *reader, k uint32) {
	g.here = append(g.here, arrival{t, r, k})
	g.meet()
}

func (g *group) meet() {
	w := g.w
	if g.broken || len(g.here) == 0 || len(g.here) < g.size-g.left {
		return
	}
	here := g.here
	g.here = nil
	w.at(w.now+w.time(100*microsecond, 5*millisecond), func() {
		for _, a := range here {
			if !a.t.alive {
				return // the others wait until the launcher ends them
			}
		}
		last := w.plan.drops && !slices.ContainsFunc(here, func(a arrival) bool { return !a.t.inLastRound() })
		if last && w.plan.forgets && !w.forgot {
			w.forgot = true
			for _, a := range here {
				a.t.run(a.t.endsUnstepped)
			}
			return
		}
		if g.step++; w.plan.exact == 0 {
			g.step += int64(w.of(0, 1))
		}
		s := g.step
		idle := true
		for _, a := range here {
			if idle = idle && a.k == 0; w.plan.exact > 0 {
				a.t.intoExact(s)
			} else {
				a.t.into(a.r, a.k)
			}
		}
		g.allEnded = w.plan.exact > 0 && idle
		save := saving{shards: g.size}
		if w.plan.saves > 0 && w.oneIn(w.plan.saves) || last { // a program also saves at its end
			save.copied, save.carried = g.model.clone(), w.carries()
			save.stores = last || w.stores()
			if save.carried || !w.plan.sharded || w.plan.memory {
				save.shards = 0
			}
		}
		writer := slices.MinFunc(here, func(a, b arrival) int { return int(a.t.rank) - int(b.t.rank) }).t
		for _, a := range here {
			a.t.run(func() {
				if w.plan.exact > 0 {
					a.t.steppedExact(s)
				} else {
					a.t.stepped(a.r, a.k, s)
				}
				if save.copied != nil && !a.t.saving {
					own := save
					own.writes = a.t == writer
					a.t.save(&own)
				}
				a.t.busy = false
				a.t.work()
			})
		}
	})
}

// over reports whether every rank has ended with success.
func (w *World) over() bool {
	if w.plan.model == replicated {
		return w.group.left == w.group.size && !w.group.next
	}
	for _, s := range w.slots {
		if !s.done {
			return false
		}
	}
	return true
}

// superseded: the master says that a later process of t's rank, or a later group, has joined. It must not
// say so of the newest one. Exception: the other process was made at almost the same time on another
// node. The clocks of two nodes can be compared only with an error, which is the time that a message
// between them is on its way. If a master stood still and read a session's messages late, the processes
// that this session names count as made later by that time. This error is at most the time that its Hello
// was on its way.
func (t *trainer) superseded(reason string) {
	newest := t.slot != nil && t.slot.cur == t || t.group != nil && t.w.group == t.group
	if newest && !slices.ContainsFunc(t.w.everybody, func(o *trainer) bool {
		other := o.rank == t.rank || t.group != nil && o.group != nil && o.group != t.group
		return other && o.node != t.node && o.born <= t.born && t.born-o.born < max(t.w.plan.delay, o.lag)
	}) {
		t.w.fail("%s is the newest of its rank, and is refused: %s", t.name, reason)
	}
}

// modelLost: the server of a shared model is gone, and its trainers end. The whole job starts again.
func (w *World) modelLost() {
	w.model, w.served = w.newModel(), false
	for _, t := range w.trainers {
		t.kill("the model is lost")
	}
	w.books.forget()
	w.reopenAll()
}

// reopenAll starts ranks again that have ended with success.
func (w *World) reopenAll() {
	for _, s := range w.slots {
		if s.done {
			s.done = false
			w.at(w.now+w.time(20*millisecond, 2*second), func() { s.start(w) })
		}
	}
}

func (w *World) masterDown() {
	w.at(w.now+w.time(10*millisecond, 3*second), w.startMaster)
}

func (w *World) agentDown(n *node) {
	w.at(w.now+w.time(10*millisecond, 2*second), func() { w.startAgent(n) })
}

// sameAgent reports whether a is the newest agent of its node.
func (w *World) sameAgent(a *agent) bool { return a.node.agent == a }
