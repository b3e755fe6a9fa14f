package sim

import (
	"fmt"

	"github.com/headrace/headrace/shardsvc"
)

// plan is what a seed decides at the beginning: the job, the speed of everything, and the kinds of trouble.
type plan struct {
	model      string
	ranks      int
	nodes      int
	ttl        Time
	lostAfter  Time // shared: an agent that is silent for so long is lost
	history    int64
	datasets   []datasetPlan
	live       bool // the input grows while it is read
	rows       int  // per batch, at most
	accumulate int  // batches per step, at most
	window     int  // batches on their way to a trainer
	pace       Time // of a batch, at most
	read       Time // of a frame, at most
	delay      Time // between nodes, one way, at most
	maxWait    Time // 0: a batch waits until it is full
	maxPending int  // limit of the master's loop
	commit     Time // at most, of a healthy disk

	rounds bool // replicated: either all ranks get a batch, or none does
	drops  bool // and every round is full: the rows left at the end are dropped
	// forgets: the program of the first group that comes to the last round ends without stepping it.
	forgets bool

	isolates bool // some records crash their trainer
	aborts   bool // and then other trainers on its node abort

	exact int // number of virtual ranks; 0: not bit_exact

	saves   int  // one checkpoint in so many steps; 0: none
	carries int  // one save in so many is ours, the others a framework's; 0: all are ours
	sharded bool // replicated: all ranks write
	keep    int  // how many checkpoints to keep
	memory  bool // each save first copies into the node's memory, and only some go on to storage
	// replicas: a complete checkpoint in memory is also copied to another node.
	replicas bool
	apart    bool // private: each rank has its own folder and sees no other
	write    Time // of one file system call of a checkpoint, at most

	trouble  Time // there is trouble until then
	every    Time // between two troubles, at most
	kinds    []trouble
	troubles []Trouble // the troubles that come, in order
}

type datasetPlan struct {
	name string
	opt  shardsvc.Options
	age  Time // age from which a record is too old; 0: never
}

func (w *World) draw() {
	p := &w.plan
	*p = plan{
		model:      pick(w.dice, []string{shared, replicated, private}),
		ranks:      w.of(1, 4),
		nodes:      w.of(1, 3),
		ttl:        pick(w.dice, []Time{second, 2 * second, 5 * second}),
		history:    int64(pick(w.dice, []int{1, 4, 128})),
		live:       w.oneIn(3),
		rows:       w.of(1, 12),
		accumulate: w.of(1, 3),
		window:     w.of(1, 6),
		pace:       w.time(5*millisecond, 300*millisecond),
		read:       w.time(millisecond, 30*millisecond),
		delay:      w.time(millisecond, 100*millisecond),
		maxPending: pick(w.dice, []int{4, 30, 1000, 1000}),
		commit:     w.time(millisecond, 30*millisecond),
		trouble:    w.time(2*second, 20*second),
		every:      w.time(200*millisecond, 3*second),
	}
	p.lostAfter = p.ttl
	if p.model == shared && w.story.Seed%2 == 1 { // no dice, so that the seed's other draws do not change
		p.lostAfter = Time(1+w.story.Seed/2%4) * p.ttl
	}
	if w.oneIn(3) {
		p.saves = 0
	} else {
		p.saves = w.of(1, 12)
	}
	if w.oneIn(3) {
		p.carries = w.of(1, 4)
	}
	p.sharded, p.keep, p.write = w.oneIn(2), w.of(1, 4), w.time(millisecond, 200*millisecond)
	if w.oneIn(2) {
		p.maxWait = w.time(5*millisecond, 500*millisecond)
	}
	for i := range w.of(1, 2) {
		opt := shardsvc.Options{
			Passes: w.of(1, 2), Initial: int64(w.of(3, 30)), Min: int64(w.of(1, 8)), Max: int64(w.of(30, 100)),
			Target: shardsvc.Time(w.time(200*millisecond, 2*second)), Unit: "records",
		}
		if w.oneIn(2) {
			opt.Stall = shardsvc.Time(w.time(4*second, 30*second))
		}
		switch w.of(0, 3) {
		case 0:
			opt.Strict = true
		case 1:
			opt.Shuffle, opt.Block, opt.Seed = true, int64(w.of(1, 12)), w.r.Uint64()
		}
		opt.GoOnAfterLoss = !w.oneIn(4)
		p.datasets = append(p.datasets, datasetPlan{fmt.Sprint("d", i+1), opt, 0})
	}
	if p.model == replicated && w.oneIn(3) {
		p.beExact(w)
	}
	// Each seed has only some kinds of trouble, so that none hides another.
	for _, t := range troubles {
		if t.name == endsUnheard {
			continue // only in seeds that are about it
		}
		if w.oneIn(3) && (!t.rare || w.oneIn(3)) || t.name == diskLost && p.model == private && w.oneIn(3) {
			p.kinds = append(p.kinds, t)
		}
	}
	p.apart = !w.oneIn(3)
	if w.oneIn(3) {
		pick(w.dice, themes).shape(w)
	}
	if p.model == shared && w.story.Seed%4 == 3 { // no dice, as above
		allAway.shape(w)
		p.beSlow()
	} else if p.model != shared && w.story.Seed%4 == 2 {
		outOfOrder.shape(w)
	}
	if len(p.kinds) > 0 && w.story.Seed%5 == 1 {
		p.kinds = append(p.kinds, reclaimed)
	}
	p.drawRounds(w.story.Seed)
	p.drawMemory(w.story.Seed)
	p.drawCrashes(w.story.Seed)
	p.draw(newDice(w.story.Seed, 1))
}

// beSlow makes leases of many batches, which are all in the trainers' hands.
func (p *plan) beSlow() {
	p.ranks, p.accumulate = 1+p.ranks/3, 1
	p.rows, p.window, p.every, p.delay, p.pace = 1+p.rows/4, 3, 5*second, p.delay/4, p.ttl/10
	for i := range p.datasets {
		o := &p.datasets[i].opt
		o.Initial, o.Min, o.Max, o.Target = 60, 40, 200, shardsvc.Time(20*second)
	}
}

// commitTime is how long the disk takes for a batch.
func (w *World) commitTime() Time {
	if w.slow {
		return w.time(w.plan.commit, 3*second)
	}
	return w.time(50*microsecond, w.plan.commit)
}

// patience is how long the job may take after the last trouble.
func (w *World) patience() Time {
	d := 60*second + 20*w.plan.ttl + 2*Time(w.records)*w.plan.pace
	if w.plan.model == replicated {
		d += Time(w.records) * 300 * millisecond // every step waits for ranks without a batch
	}
	if w.lossy || w.spoilt || w.ages { // an empty lease takes a message to the master and an answer
		d += 4 * Time(w.records) * w.plan.delay
	}
	if w.plan.isolates { // each deadly record ends trainers a few times, and their records come again one by one
		d += Time(len(w.input.deadly))*120*second + Time(w.records)*(second+8*w.plan.pace)
	}
	if w.dawdled {
		d += 2 * dawdle
	}
	return d
}
