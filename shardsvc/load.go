package shardsvc

import (
	"fmt"
)

// Load takes one stored pair. Call it for all keys in their order, then call Loaded. It
// keeps neither key nor value.
func (c *Core) Load(k, value []byte) error {
	at, err := decodeKey(k)
	if err != nil {
		return err
	}
	l := c.loading
	switch at.letter {
	case keyJob:
		v, e := decodeJob(value)
		l.job, err = &v, e
	case keyDataset:
		err = load(&l.datasets, at, value, decodeDataset)
	case keyLeftover:
		err = load(&l.leftovers, at, value, decodeLeftover)
	case keyPartition:
		err = load(&l.parts, at, value, decodePartition)
	case keySegment:
		err = load(&l.segs, at, value, decodeSegment)
	case keySettled:
		err = load(&l.settled, at, value, decodeSettled)
	case keyAck:
		err = load(&l.acks, at, value, decodeAck)
	case keyTries:
		err = load(&l.tries, at, value, decodeTries)
	case keyExcluded:
		err = load(&l.excluded, at, value, decodeExclusion)
	case keyDropped:
		err = load(&l.dropped, at, value, decodeDrop)
	case keyLetter:
		err = load(&l.letters, at, value, decodeLetter)
	case keyCut:
		err = load(&l.cuts, at, value, decodeCutValue)
	case keyRemoved:
		err = load(&l.removed, at, value, decodeRemoved)
	case keyRank:
		err = load(&l.ranks, at, value, decodeRank)
	case keyTransaction:
		err = load(&l.landed, at, value, decodeLanded)
	case keyAgent:
		err = load(&l.agents, at, value, decodeAgent)
	}
	if err != nil {
		return fmt.Errorf("stored %s: %w", at, err)
	}
	return nil
}

// Loaded makes the core from the loaded pairs. Its error says what does not fit. The master
// must not start on such a state.
func (c *Core) Loaded() error {
	l := c.loading
	if l == nil || l.done {
		return nil
	}
	l.done = true
	if err := c.loadJob(l); err != nil {
		return err
	}
	if err := c.ledger.load(l); err != nil {
		return err
	}
	c.group.load(l)
	c.loadPasts(l)
	if err := c.loadCuts(l); err != nil {
		return err
	}
	c.loadRemoved(l.removed)
	c.loadRecent()
	return nil
}

func (c *Core) loadJob(l *loading) error {
	if l.job == nil {
		if len(l.datasets)+len(l.parts)+len(l.ranks)+len(l.agents) > 0 {
			return fmt.Errorf("the state has no job record: it is damaged, or belongs to something else; use another state folder")
		}
		c.epoch = 1
		if c.model.inStep {
			c.epoch = 0 // the first generation begins epoch 1
		} else {
			c.generation = 1
		}
		return nil
	}
	v := l.job
	if v.job != c.cfg.Job && c.cfg.Job != "" {
		return fmt.Errorf("it holds job %q, whose model is %s, and not job %q; give it another folder with --state DIR, or go on with --job %s", v.job, v.model, c.cfg.Job, v.job)
	}
	if v.model != c.cfg.Model && (modelOf(v.model).byStep || c.model.byStep) {
		return fmt.Errorf("it holds job %q, whose model is %s, not %s, and a job keeps its model; go on with --model %s, or begin another job with --job NEW or --state DIR", v.job, v.model, c.cfg.Model, v.model)
	}
	c.cfg.Job = v.job
	c.epoch, c.term, c.generation, c.genEnded = v.epoch, v.term, v.generation, v.generationEnded
	return nil
}

// start begins a new term. If agents or processes are known from before, nothing is granted
// until they are back or LostAfter (one TTL, unless it is set longer) has passed.
func (c *Core) start() {
	if c.started {
		c.rejected("started twice")
		return
	}
	if err := c.Loaded(); err != nil {
		panic("shardsvc: " + err.Error())
	}
	c.loading, c.started = nil, true
	c.term++
	c.jobDirty = true
	waits := c.group.start()
	c.ledger.start()
	c.checkpoints.start()
	if waits {
		c.recovering = true
		c.timers.push(timer{at: c.now + c.cfg.LostAfter, kind: timerRecovery})
		c.checkRecovery()
	}
	c.ledger.serveAll()
}
