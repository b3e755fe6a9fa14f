package shardsvc

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"
)

// loading gathers stored pairs. Keys come in the order of their letters, which
// is not the order in which they can be understood.
type loading struct {
	job      *jobValue
	datasets []stored[datasetValue]
	parts    []stored[partitionValue]
	segs     []stored[segmentValue]
	settled  []stored[settledValue]
	acks     []stored[ackValue]
	tries    []stored[triesValue]
	ranks    []stored[rankValue]
	agents   []stored[agentValue]
	excluded []stored[exclusionValue]
	cuts     []stored[cutValue]
	removed  []stored[removedValue]
	done     bool
}

type stored[V any] struct {
	key key
	val V
}

func newLoading() *loading { return &loading{} }

// Load takes one stored pair; call it for all keys in their order, then Loaded.
// It keeps neither key nor value.
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
	case keyCut:
		err = load(&l.cuts, at, value, decodeCutValue)
	case keyRemoved:
		err = load(&l.removed, at, value, decodeRemoved)
	case keyRank:
		err = load(&l.ranks, at, value, decodeRank)
	case keyAgent:
		err = load(&l.agents, at, value, decodeAgent)
	}
	if err != nil {
		return fmt.Errorf("stored %s: %w", at, err)
	}
	return nil
}

func load[V any](to *[]stored[V], k key, value []byte, decode func([]byte) (V, error)) error {
	v, err := decode(value)
	if err == nil {
		*to = append(*to, stored[V]{k, v})
	}
	return err
}

func (k key) String() string {
	switch k.letter {
	case keyJob:
		return "job"
	case keyDataset:
		return fmt.Sprintf("dataset %d", k.ds)
	case keyCut:
		return fmt.Sprintf("cut %016x", k.cut)
	case keyRemoved:
		return fmt.Sprintf("removed cut %016x", k.cut)
	case keyRank:
		return fmt.Sprintf("rank %d", k.rank)
	case keyAgent:
		return fmt.Sprintf("agent %q", k.name)
	}
	return fmt.Sprintf("%q of dataset %d partition %d pass %d segment %d start %d", k.letter, k.ds, k.part, k.pass, k.segment, k.start)
}

// Loaded makes the core of what was loaded. Its error says what does not fit;
// the master must not start on such a state.
func (c *Core) Loaded() error {
	l := c.loading
	if l == nil || l.done {
		return nil
	}
	l.done = true
	if err := c.loadJob(l); err != nil {
		return err
	}
	for _, s := range l.datasets {
		if c.dataset(s.key.ds) != nil || s.key.ds >= c.nextDS {
			return fmt.Errorf("stored %s: the number is taken, or not below the next one, %d", s.key, c.nextDS)
		}
		d := c.newDataset(s.key.ds)
		d.name, d.reason, d.spec = s.val.name, s.val.reason, s.val.spec
		c.setOptions(d, s.val.opt)
		d.paused, d.failed, d.partsAll = s.val.paused, s.val.failed, s.val.partsAll
	}
	if err := c.loadPartitions(l); err != nil {
		return err
	}
	if err := c.loadPasses(l); err != nil {
		return err
	}
	for _, s := range l.ranks {
		r := c.rankOf(s.key.rank)
		r.incarnation, r.generation, r.step = s.val.incarnation, s.val.generation, s.val.step
		r.attached, r.fenced, r.others = s.val.attached, s.val.fenced, s.val.others
		r.unheard = r.others
		r.ended, r.must, r.called, r.lost, r.choice = s.val.ended, s.val.must, s.val.called, s.val.lost, s.val.choice
	}
	if err := c.loadCuts(l); err != nil {
		return err
	}
	c.loadRemoved(l.removed)
	for _, s := range l.agents {
		a := c.newAgent(s.key.name, s.val.incarnation)
		a.superseded, a.known = s.val.superseded, true
	}
	c.loadRecent()
	return nil
}

func (c *Core) loadJob(l *loading) error {
	if l.job == nil {
		if len(l.datasets)+len(l.parts)+len(l.ranks)+len(l.agents) > 0 {
			return fmt.Errorf("the state has no job record: it is damaged or of something else; use another state folder")
		}
		c.epoch = 1
		if c.cfg.Model == Replicated {
			c.epoch = 0 // the first generation begins epoch 1
		} else {
			c.generation = 1
		}
		return nil
	}
	v := l.job
	if v.job != c.cfg.Job && c.cfg.Job != "" {
		return fmt.Errorf("the state is of job %q, not %q: use another state folder", v.job, c.cfg.Job)
	}
	folds := v.model != Replicated && v.model != Private
	if v.model != c.cfg.Model && !(folds && c.folds) {
		return fmt.Errorf("the state is of a job with model %q, not %q: a job keeps its model kind; use another state folder", v.model, c.cfg.Model)
	}
	c.cfg.Job = v.job
	c.epoch, c.term, c.generation, c.worldSize, c.genEnded = v.epoch, v.term, v.generation, v.worldSize, v.generationEnded
	c.nextDS, c.nextPart = v.nextDataset, v.nextPartition
	c.cutOrder, c.phase, c.choice, c.restored = v.cuts, v.phase, v.choice, v.restored
	return nil
}

func (c *Core) loadPartitions(l *loading) error {
	for _, s := range l.parts {
		d := c.dataset(s.key.ds)
		if d == nil || c.partition(s.key.part) != nil || s.key.part >= c.nextPart {
			return fmt.Errorf("stored %s: no such dataset, or the number is taken, or not below the next one, %d", s.key, c.nextPart)
		}
		p := c.newPartition(d, s.key.part)
		if err := p.named(s.val.identity); err != nil {
			return fmt.Errorf("stored %s: %w", s.key, err)
		}
		p.name, p.estimated, p.folded, p.units, p.records = s.val.name, s.val.estimated, s.val.done, s.val.units, s.val.records
		if p.folded > uint32(d.opt.Passes) {
			return fmt.Errorf("stored %s: %d passes are done of %d", s.key, p.folded, d.opt.Passes)
		}
	}
	for _, s := range l.segs {
		p := c.partition(s.key.part)
		if p == nil || p.ds.id != s.key.ds || s.key.segment <= p.LastSeg || !p.Fits(s.val.start, s.val.end) {
			return fmt.Errorf("stored %s: no such partition, or out of order", s.key)
		}
		c.appendSegment(p, &sources.Segment{ID: s.key.segment, Start: s.val.start, End: s.val.end, Sealed: s.val.sealed, Locator: s.val.locator, Name: s.val.name})
	}
	for _, s := range l.parts {
		if s.val.complete {
			p := c.partition(s.key.part)
			if n := len(p.Segs); n > 0 {
				p.Segs[n-1].Sealed = true
			}
			p.Complete = true
			p.ds.incomplete--
		}
	}
	for _, s := range l.parts {
		if p := c.partition(s.key.part); !p.foldedAddUp() {
			return fmt.Errorf("stored %s: %d passes of %d units are done, its counts say %d", s.key, p.folded, p.Total, p.units)
		}
	}
	return nil
}

// foldedAddUp: each unit of each folded pass is settled once.
func (p *partition) foldedAddUp() bool {
	if p.folded > 0 && p.Total > line.Max/int64(p.folded) {
		return false
	}
	left, exact := p.listedFolded()
	for _, n := range p.units {
		if n < 0 || n > left {
			return false
		}
		left -= n
	}
	return left == 0 || !exact
}

func (c *Core) loadPasses(l *loading) error {
	for _, s := range l.settled {
		p := c.partition(s.key.part)
		if p == nil || p.ds.id != s.key.ds || s.key.pass != p.begun() || s.key.pass >= uint32(p.ds.opt.Passes) {
			return fmt.Errorf("stored %s: no such partition, or a pass out of order", s.key)
		}
		c.growTo(p, s.val.low)
		for _, r := range s.val.ranges {
			c.growTo(p, r.end)
		}
		ps := c.newPass(p, s.key.pass)
		low, ok := ps.OnLine(s.val.low)
		ps.base.Low = low
		ps.kinds = s.val.units
		ps.folded = s.val.units[line.Acked]
		if ps.records = s.val.records; c.basis(ps) != &ps.records && ps.records != (cut.Tally{}) { // of an older version
			p.records.Add(ps.records)
			ps.records = cut.Tally{}
			c.dirtyPartition(p)
			c.dirtyPass(ps)
		}
		for _, r := range s.val.ranges {
			start, ok1 := ps.OnLine(r.start)
			end, ok2 := ps.OnLine(r.end)
			if ok = ok && ok1 && ok2 && start < end; ok {
				ps.base.Add(start, end, r.kind)
			}
		}
		if !ok {
			return fmt.Errorf("stored %s: a range lies outside the segments", s.key)
		}
		if sum := ps.kinds[line.Acked] + ps.kinds[line.Excluded] + ps.kinds[line.Dropped]; sum != ps.UnitsOf(&ps.base) || min(ps.kinds[line.Acked], ps.kinds[line.Excluded], ps.kinds[line.Dropped]) < 0 {
			return fmt.Errorf("stored %s: its ranges hold %d units, its counts say %d", s.key, ps.UnitsOf(&ps.base), sum)
		}
		if ps.done != &ps.base {
			c.rebuildDone(ps)
		}
	}
	for _, s := range l.acks {
		for i, k := range s.val.pieces {
			ps, start, end, err := c.loadRange(s.key, line.Place{Segment: s.key.segment, Offset: k.end})
			if err != nil {
				return err
			}
			if ps.done == &ps.base || ps.done.Touches(start, end) {
				return fmt.Errorf("stored %s: settled twice, or the model kind keeps no steps", s.key)
			}
			units, records := ps.Units(start, end), k.records
			if s.val.uncounted {
				records = cut.Untold(units)
			} else if records.Untold > units {
				return fmt.Errorf("stored %s: %d units are untold of %d", s.key, records.Untold, units)
			}
			ps.acks = append(ps.acks, piece{start: start, end: end, rank: s.val.rank, generation: s.val.generation, step: k.step, Tally: records,
				inKey: inKey{head: i == 0, stored: i == 0}})
			ps.done.Add(start, end, line.Acked)
			ps.kinds[line.Acked] += units
			s.key.start = k.end // the next one begins there
		}
	}
	for _, s := range l.tries {
		ps, start, end, err := c.loadRange(s.key, s.val.end)
		if err != nil {
			return err
		}
		ps.tries.Set(start, end, s.val.tries)
	}
	for _, p := range c.parts {
		if p != nil {
			c.loadLine(p)
		}
	}
	for _, p := range c.parts {
		if p == nil {
			continue
		}
		if err := c.checkRecords(p); err != nil {
			return fmt.Errorf("stored partition %s: %w", p.identity, err)
		}
	}
	return c.loadExcluded(l.excluded)
}

func (c *Core) loadRange(k key, to line.Place) (ps *pass, start, end int64, err error) {
	p := c.partition(k.part)
	if p == nil || p.ds.id != k.ds || k.pass < p.folded || k.pass >= p.begun() {
		return nil, 0, 0, fmt.Errorf("stored %s: no such partition or pass", k)
	}
	ps = p.passes[k.pass-p.folded]
	c.growTo(p, to)
	start, ok := ps.OnLine(line.Place{Segment: k.segment, Offset: k.start})
	end, ok2 := ps.OnLine(to)
	if !ok || !ok2 || start >= end {
		return nil, 0, 0, fmt.Errorf("stored %s: the range lies outside the segments", k)
	}
	return ps, start, end, nil
}

// loadLine derives frontier and pending: what lies below the highest thing that
// was ever handed out and came to something, and is not settled.
func (c *Core) loadLine(p *partition) {
	for _, n := range p.units {
		p.ds.planned += n
	}
	for i, ps := range p.passes {
		high := ps.done.High()
		if n := len(ps.tries); n > 0 {
			high = max(high, ps.tries[n-1].End)
		}
		if i < len(p.passes)-1 {
			high = p.LineEnd() // the next one began, so it was planned
		}
		c.advance(ps, high)
		ps.done.Gaps(0, high, func(start, end int64) { c.addPending(ps, start, end) })
	}
}

// loadRecent lines up the pieces that may fold once their step is old.
func (c *Core) loadRecent() {
	type mine struct {
		r *rank
		recentPiece
	}
	var all []mine
	for _, p := range c.parts {
		if p == nil {
			continue
		}
		for _, ps := range p.passes {
			for _, k := range ps.acks {
				all = append(all, mine{c.rankOf(k.rank), recentPiece{ps, k.start, k.step}})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b mine) int { return int(min(max(a.step-b.step, -1), 1)) })
	for _, m := range all {
		m.r.recent.Push(m.recentPiece)
	}
}

// start begins a new term. If agents are known from before, nothing is granted
// until they are back or one TTL has passed.
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
	c.dirty.job = true
	for _, r := range c.ranks {
		r.older = 0
	}
	for _, a := range c.agents {
		a.lastHeard = c.now
		c.timers.push(timer{at: c.now + c.cfg.SessionTTL, kind: timerSession, a: a})
	}
	waits := len(c.agents) > 0 || slices.ContainsFunc(c.ranks, func(r *rank) bool { return r.attached || r.others })
	for _, p := range c.parts {
		if p != nil {
			c.changed(p)
			c.needSegments(p)
		}
	}
	for _, r := range c.ranks {
		if r.lost {
			c.rankGone(r)
		}
	}
	if c.phase == restoreOpen || c.phase == restoreWaits {
		c.watchRestore()
	}
	if waits {
		c.recovering = true
		c.timers.push(timer{at: c.now + c.cfg.SessionTTL, kind: timerRecovery})
		c.checkRecovery()
	}
	for _, d := range c.datasets {
		if d != nil {
			d.done = d.partsAll && d.unsettled == 0
			c.kick(d)
		}
	}
}
