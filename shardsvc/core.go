package shardsvc

import "fmt"

// Core is the state machine. One goroutine uses it.
type Core struct {
	turn
	ledger
	group
	checkpoints
	loading *loading // until Start
}

// New makes an empty core. Load every stored pair, then Loaded, then Step a
// *Start.
func New(cfg Config) *Core {
	c := &Core{turn: turn{cfg: cfg.withDefaults(), model: modelOf(cfg.Model)}, loading: newLoading()}
	c.ledger.init(&c.turn)
	c.group.init(&c.turn, &c.ledger)
	c.checkpoints.init(&c.turn, &c.ledger, &c.group)
	return c
}

// Step applies one event. It appends to fx and returns the time, on the shell's clock, at
// which it wants a Tick. now never goes back. Flush encodes everything that Steps have
// changed.
func (c *Core) Step(now Time, ev Event, fx *Effects) (wake Time) {
	c.fx = fx
	if t, ok := ev.(*Tick); ok {
		c.blocked += max(t.Blocked, 0)
	}
	c.shell = max(c.shell, now)
	c.now = max(c.now, now-c.blocked)
	if _, ok := ev.(*Start); !ok && !c.started {
		panic("shardsvc: the first event must be *Start")
	}
	switch e := ev.(type) {
	case *Message:
		c.message(e)
	case *Tick:
		c.tick()
	case *Lost:
		c.lost(e.Session)
	case *Heads:
		for i := range e.Heads {
			c.head(&e.Heads[i])
		}
	case *Truncated:
		c.truncated(e)
	case *Aged:
		c.aged(e)
	case *AddSegments:
		c.addSegments(e)
	case *Land:
		c.land(e)
	case *Trim:
		if p, low, named := c.trimmable(e.Partition); p != nil {
			c.ledger.trim(p, e, low, named)
		}
	case *AddPartition:
		c.addPartition(e)
	case *PartitionsListed:
		c.partitionsListed(e.Dataset)
	case *ApplyDataset:
		c.applyDataset(e)
	case *RemoveDataset:
		c.removeDataset(e)
	case *SourceReleased:
		c.sourceReleased(e.ID)
	case *SetPaused:
		c.setPaused(e.ID, e.Paused)
	case *FailDataset:
		if d := c.dataset(e.ID); d != nil {
			c.failDataset(d, e.Reason, false)
		}
	case *LettersWritten:
		c.lettersWritten(e)
	case *BindCut:
		c.bindCut(e)
	case *DropCut:
		c.dropCut(e)
	case *ResolveCut:
		c.resolveCut(e.Cut, e.Found, "no valid manifest of it was found")
	case *Rewind:
		c.rewind(e)
	case *Reclaim:
		c.reclaimRank(e)
	case *Start:
		c.start()
	default:
		panic(fmt.Sprintf("shardsvc: unknown event %T", ev))
	}
	c.dropRests()
	c.letIn()
	c.checkStarters()
	c.serve()
	c.checkPaused()
	c.checkAsks()
	c.serve() // a pause may have ended with the freeze
	c.checkRounds()
	c.fx = nil
	if at := c.timers.next(); at != Never {
		return at + c.blocked
	}
	return Never
}

func (c *Core) message(m *Message) {
	if m.Hello != nil && !c.hello(m) {
		return
	}
	a := c.speaksOn(m.Session)
	if a == nil {
		return
	}
	c.heard(a, m)
	c.joins(a, m)
	for i := range m.Held {
		c.held(&a.speaker, a.holder(m.Held[i].Worker), a.isKnown(), &m.Held[i])
	}
	c.asserted(a, m.Hello != nil)
	lg := &c.ledger
	for i := range m.Acks {
		lg.ack(&a.speaker, &m.Acks[i])
	}
	for i := range m.Steps {
		c.stepReport(a, &m.Steps[i])
	}
	for i := range m.Answers {
		c.stealAnswer(&a.speaker, &m.Answers[i])
	}
	for i := range m.Releases {
		c.release(&a.speaker, &m.Releases[i])
	}
	for i := range m.Failures {
		c.readFailure(&a.speaker, &m.Failures[i])
	}
	for i := range m.Leaves {
		c.lastRounds(a, m, m.Leaves[i].Worker)
		c.leave(a, &m.Leaves[i])
	}
	for i := range m.Status {
		c.status(a, &m.Status[i])
	}
	for i := range m.Heads {
		c.head(&m.Heads[i])
	}
	for i := range m.Requests {
		r := &m.Requests[i]
		lg.request(&a.speaker, a.holder(r.Worker), r)
	}
	for i := range m.Calls {
		c.cutCall(a, &m.Calls[i])
	}
	for i := range m.Yields {
		c.yieldsPaused(a, &m.Yields[i])
	}
	for i := range m.Rounds {
		c.roundReport(a, &m.Rounds[i])
	}
}

// Job is the state of the job and its totals in this term.
func (c *Core) Job() JobInfo {
	j := c.stats
	j.Job, j.Model = c.cfg.Job, c.cfg.Model
	j.Term, j.Epoch, j.Generation, j.WorldSize, j.Recovering = c.term, c.epoch, c.generation, c.world(), c.recovering
	return j
}
