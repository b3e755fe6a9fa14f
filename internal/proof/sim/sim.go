package sim

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/headrace/headrace/shardsvc/cut"
)

// World is one run: everything there is, on one clock.
type World struct {
	clock
	dice
	plan  plan
	story Story
	input *input
	lot   [][]int32 // bit_exact: the records of each virtual rank, in order
	dealt []int     // the virtual rank of each record

	disk      *disk
	master    *master // the newest process that got the disk
	nodes     []*node
	slots     []*slot
	group     *group // of a replicated job, the newest
	trainers  []*trainer
	everybody []*trainer // all trainers that were ever started
	model     *model     // of a shared job
	books     *books
	storage   storage
	texts     map[*cut.Cut][]byte // encoded cuts
	cuts      map[string]*cut.Cut // the cuts of those texts
	records   int                 // number of records in all passes

	pushes      []*push           // of an input that is pushed, in order
	logs        []*inputLog       // of inputs in a live source
	moved       bool              // a master has listed input that begins later than before
	lossy       bool              // the source has deleted something
	spoilt      bool              // some records are bad
	ages        bool              // some records become too old
	frozenOut   map[uint64][]bool // by cut: what was excluded when it was frozen
	served      bool              // shared: trainers can reach the model
	groupStarts bool              // the next group does not restore
	forgot      bool              // a group has ended without stepping its last round
	lives       int64             // how often a master began on an empty disk and numbered segments again
	emptied     Time              // when the master last lost its disk
	loaded      *manifest         // shared: the checkpoint with which the present model began
	backs       int               // shared: how many processes went back to a checkpoint
	dawdles     bool              // the next rank that should restore does not, for a long time
	dawdled     bool

	slow, failing, pausing bool
	calm                   Time // since when there is no more trouble; 0: there still is

	masters, agents int
	reached         int
	incarnations    uint64

	events, crashes, yields, repeats int
	seen                             struct{ steals, expired, cuts, bound, restores, wentBack, exact, unstepped, excluded, bad, deaths, old, gone, crossed, reclaims, inMemory, fromMemory, fetched, sealed, trimmed, pulled, outages int }

	tracing bool
	out     io.Writer
	fault   string
}

// Result of one seed.
type Result struct {
	Seed    uint64
	Failed  string // empty: nothing was wrong
	Events  int    // events given to the cores
	Crashes int
	Yields  int // records yielded to trainers
	Repeats int // shared: records that are in the model more than once, each for a reason
	Steals  int // leases that gave up a tail
	Expired int // sessions that expired
	Cuts    int // cuts that were frozen and compared with their models
	Exact   int // exact cuts of a shared model
	Killed  int // records in exact checkpoints from killed trainers whose step had not arrived
	Bound   int
	Back    int // restores to a cut
	Lost    int // records that were excluded
	Old     int // of these: records excluded for their age
	Deaths  int // trainers that a record has crashed
	Crossed int // grants of a live source after all of its history
	Memory  int // checkpoints that were complete in memory
	Slots   int // restores from such a checkpoint
	Fetched int // replicas that a rank fetched from another node
	Sealed  int // segments of a live source whose end a master learned before the next segment
	Trimmed int // records that a live source trimmed because they were not needed
	Pulled  int // needed segments that a live source has lost
	Outages int // outages of live sources
	Gone    int // how often a cut was compared with the deleted records
	Taken   int // ranks whose rows were taken back
	Reached int // troubles of the seed that came
	Size    int // the input is so many times the one that was drawn first
	End     Time
}

// Story is a seed, perhaps without some of its troubles.
type Story struct {
	Seed    uint64
	Without []int // indexes in Troubles
	Size    int   // factor of the input; 0: what the seed needs with all its troubles
}

// leastEvents is how much must happen in a seed. If the job is over before, the seed is played again with
// twice the input, as often as needed.
const (
	leastEvents = 500
	largest     = 64
)

// stopped is the panic that ends a failed run.
type stopped struct{}

func (w *World) fail(format string, args ...any) {
	w.fault = fmt.Sprintf("at %v: %s", span(w.now), fmt.Sprintf(format, args...))
	panic(stopped{})
}

// Run plays one seed. It writes all that happens to trace, if that is not nil.
func Run(seed uint64, trace io.Writer) Result { return Story{Seed: seed}.Run(trace) }

// Run plays the story.
func (s Story) Run(trace io.Writer) (r Result) {
	if s.Size > 0 {
		return s.play(trace)
	}
	all := Story{Seed: s.Seed, Size: 1}
	for r = all.play(nil); r.Failed == "" && r.Events < leastEvents; r = all.play(nil) {
		if all.Size *= 2; all.Size > largest {
			r = Story{s.Seed, s.Without, largest}.play(trace)
			if r.Failed == "" && r.Old == 0 { // otherwise most records of any input are too old before they are read
				r.Failed = fmt.Sprintf("only %d events happen", r.Events)
			}
			return r
		}
	}
	if s.Size = all.Size; trace == nil && len(s.Without) == 0 {
		return r
	}
	return s.play(trace)
}

// newWorld is the world of a story before it begins.
func newWorld(s Story) *World {
	return &World{dice: newDice(s.Seed, 0), story: s,
		disk: &disk{data: map[string][]byte{}}, texts: map[*cut.Cut][]byte{}, cuts: map[string]*cut.Cut{}}
}

func (s Story) play(trace io.Writer) (res Result) {
	w := newWorld(s)
	w.out, w.tracing = trace, trace != nil
	defer func() {
		switch r := recover().(type) {
		case nil, stopped:
		default:
			w.fault = fmt.Sprintf("at %v: panic: %v\n%s", span(w.now), r, debug.Stack())
		}
		w.tracef("sim", "ends: %s", w.fault)
		res = Result{Seed: s.Seed, Size: s.Size, Reached: w.reached, Failed: w.fault, Events: w.events, Crashes: w.crashes, Yields: w.yields, Repeats: w.repeats,
			Steals: w.seen.steals, Expired: w.seen.expired, Cuts: w.seen.cuts, Exact: w.seen.exact, Killed: w.seen.unstepped, Bound: w.seen.bound, Back: w.seen.wentBack, Lost: w.seen.excluded, Gone: w.seen.gone, Taken: w.seen.reclaims, Old: w.seen.old, Deaths: w.seen.deaths, Crossed: w.seen.crossed, Memory: w.seen.inMemory, Slots: w.seen.fromMemory, Fetched: w.seen.fetched, Sealed: w.seen.sealed, Trimmed: w.seen.trimmed, Pulled: w.seen.pulled, Outages: w.seen.outages, End: w.now}
	}()
	w.begin()
	w.run()
	return
}

func (w *World) begin() {
	w.draw()
	w.input = w.newInput(w.of(20, 400) * w.story.Size)
	passes := 1
	for _, d := range w.plan.datasets {
		passes = max(passes, d.opt.Passes)
	}
	for i := range w.plan.datasets { // all datasets have the same number of passes, because records count alike
		w.plan.datasets[i].opt.Passes = passes
	}
	w.input.datasets = w.plan.datasets
	w.records = w.input.total * passes
	w.lots()
	w.books = &books{w: w, recs: make([][]entry, w.records), out: make([]Time, w.records)}
	w.model, w.served, w.frozenOut = w.newModel(), true, map[uint64][]bool{}
	w.storage = storage{w: w, models: map[uint64]*model{}}
	w.tracePlan()
	for i := range w.plan.nodes {
		n := &node{no: i, name: fmt.Sprint("node", i)}
		w.nodes = append(w.nodes, n)
	}
	w.startMaster()
	for _, n := range w.nodes {
		w.startAgent(n)
	}
	w.launch()
	w.at(w.plan.trouble, func() {
		w.calm = w.now
		w.slow, w.failing, w.pausing = false, false, false
		w.tracef("sim", "nothing breaks any more")
	})
	w.planTroubles()
	w.startPushing()
	w.startLogs()
}

// run runs until every rank has ended with success, or until it takes too long.
func (w *World) run() {
	for !w.over() {
		do, ok := w.next()
		if !ok {
			w.fail("no event is planned any more, and the job has not ended")
		}
		if w.events > 400_000 {
			w.fail("there were too many events, and the job has not ended: %s", w.state())
		}
		if w.calm > 0 && w.now > w.calm+w.patience() {
			w.fail("the job has not ended %v after the last trouble: %s", span(w.now-w.calm), w.state())
		}
		do()
	}
	w.settleDown()
	w.books.close()
}

// settleDown lets everything arrive that is on its way. Then the master must keep nothing that it does not
// need.
func (w *World) settleDown() {
	if w.calm == 0 {
		w.calm = w.now
	}
	for until := w.now + 20*second + 4*w.plan.ttl; w.now < until; {
		do, ok := w.next()
		if !ok {
			break
		}
		do()
	}
	w.leftOver()
	w.checkDrops()
}
