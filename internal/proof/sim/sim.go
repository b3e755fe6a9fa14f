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
	dealt []int     // whose each record is

	disk      *disk
	master    *master // the newest process that got through the disk's door
	nodes     []*node
	slots     []*slot
	group     *group // of a replicated job, the newest
	trainers  []*trainer
	everybody []*trainer // that was ever started
	model     *model     // of a shared job
	books     *books
	storage   storage
	texts     map[*cut.Cut][]byte // of cuts, as they travel
	cuts      map[string]*cut.Cut // of those texts
	records   int                 // of all passes

	pushes      []*push           // of an input that is pushed, in order
	logs        []*inputLog       // of inputs in a live source
	moved       bool              // a master has listed input that began later than before
	lossy       bool              // the source has deleted something
	spoilt      bool              // some records are bad
	ages        bool              // some records become too old
	frozenOut   map[uint64][]bool // what was excluded when a cut was frozen
	served      bool              // the model of a shared job is where its trainers find it
	groupStarts bool              // the next group begins from the start
	forgot      bool              // a group has ended without stepping its last round
	lives       int64             // of masters that began on an empty disk, and numbered segments anew
	emptied     Time              // when the master last lost its disk
	loaded      *manifest         // shared: what the model that is served began with
	backs       int               // shared: how many processes went back to one
	dawdles     bool              // the next rank that is to restore does not, for long
	dawdled     bool

	slow, failing, pausing bool
	calm                   Time // since when nothing breaks any more; 0: it still does

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
	Events  int    // given to the cores
	Crashes int
	Yields  int // records given to trainers
	Repeats int // of a shared model: records in it more than once, each for a reason
	Steals  int // leases that gave up a tail
	Expired int // sessions
	Cuts    int // frozen, and compared with their models
	Exact   int // of a shared model, with all yields held
	Killed  int // records in exact checkpoints from steps of killed trainers that had not arrived
	Bound   int
	Back    int // restores to a cut
	Lost    int // records that were excluded
	Old     int // of those, for their age
	Deaths  int // of trainers that a record has crashed
	Crossed int // grants of a live source after all of its history
	Memory  int // checkpoints that were complete in memory
	Slots   int // restores from one of them
	Fetched int // replicas that a rank has taken from another node
	Sealed  int // segments of a live source whose end a master has learned before the next one
	Trimmed int // records that a live source has trimmed, because nobody needs them
	Pulled  int // segments of a live source that it has lost, although somebody needs them
	Outages int // of a live source
	Gone    int // how often a cut was compared with what is deleted
	Taken   int // ranks whose rows somebody took back
	Reached int // how many of the seed's troubles came
	Size    int // how often the input that was drawn first
	End     Time
}

// Story is a seed, perhaps without some of its troubles.
type Story struct {
	Seed    uint64
	Without []int // by their place in Troubles
	Size    int   // of the input; 0: as the seed with all its troubles needs
}

// leastEvents is how much has to happen in a seed. One whose job is over before is
// played again with twice the input, as often as it takes.
const (
	leastEvents = 500
	largest     = 64
)

// stopped is how a failed run ends.
type stopped struct{}

func (w *World) fail(format string, args ...any) {
	w.fault = fmt.Sprintf("at %v: %s", span(w.now), fmt.Sprintf(format, args...))
	panic(stopped{})
}

// Run plays one seed. trace, if not nil, is told all that happens.
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
			if r.Failed == "" && r.Old == 0 { // else most of any input is too old before it is read
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

// newWorld is the world of a story before anything has begun.
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
	for i := range w.plan.datasets { // one number for all: records count alike
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

// run until every rank has ended with success, or it takes too long.
func (w *World) run() {
	for !w.over() {
		do, ok := w.next()
		if !ok {
			w.fail("nothing will ever happen any more, and the job has not ended")
		}
		if w.events > 400_000 {
			w.fail("too much happens, and none of it ends the job: %s", w.state())
		}
		if w.calm > 0 && w.now > w.calm+w.patience() {
			w.fail("the job has not ended %v after the last trouble: %s", span(w.now-w.calm), w.state())
		}
		do()
	}
	w.settleDown()
	w.books.close()
}

// settleDown: what is on its way arrives, and the master keeps nothing it does
// not need.
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
