package shardsvc

import "fmt"

// Config of a core. Zero durations and counts take their defaults.
type Config struct {
	Job   string
	Model string // shared | replicated | private | "" (undeclared: like shared)

	SessionTTL Time  // default 5 s
	History    int64 // steps that stay apart for cuts; default 128
	Ahead      int   // segments listed beyond the frontier below which more are asked for; default 64
}

func (cfg Config) withDefaults() Config {
	if cfg.SessionTTL == 0 {
		cfg.SessionTTL = 5 * Second
	}
	if cfg.History == 0 {
		cfg.History = 128
	}
	if cfg.Ahead == 0 {
		cfg.Ahead = 64
	}
	return cfg
}

// Model kinds.
const (
	Shared     = "shared"
	Replicated = "replicated"
	Private    = "private"
)

// Never is the wake of a core that waits for nothing but events.
const Never = Time(1<<63 - 1)

// Core is the state machine. One goroutine uses it.
type Core struct {
	cfg Config
	// folds: an ack folds into the settled set at once, because nobody can ask
	// for an older step than now (shared, undeclared).
	folds bool

	started    bool
	recovering bool
	term       uint32
	epoch      uint32
	generation uint32 // replicated: 0 before the first; else always 1
	worldSize  uint32 // of the generation
	genEnded   bool   // nothing is granted or acked until the next one starts
	nextDS     DatasetID
	nextPart   PartitionNo

	now     Time // shell's time minus blocked
	blocked Time // sum of what Ticks reported

	datasets []*dataset   // by id; nil: never made, or removed
	parts    []*partition // by number; nil likewise
	agents   []*agent     // in order of arrival
	byName   map[string]*agent
	sessions map[Session]*agent
	workers  []*worker
	ranks    []*rank // in order of arrival
	byRank   map[uint32]*rank

	cuts     []*keptCut   // in order of cutOrder
	cutOrder uint64       // of the newest
	removed  []removedCut // that were given up last, in order
	asks     []*ask       // that wait, in order of arrival
	askDue   bool         // something happened that may complete one

	yields    *yieldHold // nil: none is on
	yieldsDue bool       // something happened that may complete it
	doubting  bool       // a restore waits for what is known of others
	heldLast  heldYields

	topStep   int64 // the highest one reported in the generation
	phase     restorePhase
	choice    uint64 // of the generation: the cut that it went back to; 0: the start
	restored  int64  // its step
	restoreBy Time   // deadline of the phase
	restoring uint32 // no rank below it is missing

	leases leaseTable
	timers timerHeap

	dirty    dirty
	fx       *Effects // during a Step
	loading  *loading // until Start
	kicked   []*dataset
	thieves  []*worker  // scratch of steal scans
	victims  []victim   // scratch of steal scans
	rejoined []*worker  // in the message at hand
	conceded []conceded // in it as well
	stats    JobInfo    // counters
}

// New makes an empty core. Load every stored pair, then Loaded, then Step a
// *Start.
func New(cfg Config) *Core {
	cfg = cfg.withDefaults()
	return &Core{
		cfg:      cfg,
		folds:    cfg.Model != Replicated && cfg.Model != Private,
		byName:   map[string]*agent{},
		sessions: map[Session]*agent{},
		byRank:   map[uint32]*rank{},
		leases:   newLeaseTable(),
		nextDS:   1,
		nextPart: 1,
		loading:  newLoading(),
	}
}

// Step applies one event. It appends to fx and returns when it wants a Tick,
// on the shell's clock. now never goes back. What became dirty is encoded by
// Flush.
func (c *Core) Step(now Time, ev Event, fx *Effects) (wake Time) {
	c.fx = fx
	if t, ok := ev.(*Tick); ok {
		c.blocked += max(t.Blocked, 0)
	}
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
	case *AddSegments:
		c.addSegments(e)
	case *AddPartition:
		c.addPartition(e)
	case *PartitionsListed:
		c.partitionsListed(e.Dataset)
	case *ApplyDataset:
		c.applyDataset(e)
	case *RemoveDataset:
		c.removeDataset(e.ID)
	case *SetPaused:
		c.setPaused(e.ID, e.Paused)
	case *FailDataset:
		if d := c.dataset(e.ID); d != nil {
			c.failDataset(d, e.Reason)
		}
	case *BindCut:
		c.bindCut(e)
	case *DropCut:
		c.dropCut(e)
	case *SettleCut:
		c.settleCut(e.Cut, e.Found, "no valid manifest of it was found")
	case *Rewind:
		c.rewind(e)
	case *Start:
		c.start()
	default:
		panic(fmt.Sprintf("shardsvc: unknown event %T", ev))
	}
	c.checkDoubts()
	c.serve()
	c.checkYields()
	c.checkAsks()
	c.serve() // a hold may have ended with the freeze
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
	a := c.sessions[m.Session]
	if a == nil {
		return
	}
	a.lastHeard = c.now
	for i := range m.Joins {
		c.join(a, &m.Joins[i])
	}
	for i := range m.Held {
		c.held(a, &m.Held[i])
	}
	clear(c.conceded)
	c.conceded = c.conceded[:0]
	if m.Hello != nil || len(c.rejoined) > 0 {
		c.asserted(a)
	}
	for i := range m.Acks {
		c.ack(a, &m.Acks[i])
	}
	for i := range m.Steps {
		c.stepReport(a, &m.Steps[i])
	}
	for i := range m.Answers {
		c.stealAnswer(a, &m.Answers[i])
	}
	for i := range m.Releases {
		c.release(a, &m.Releases[i])
	}
	for i := range m.Failures {
		c.readFailure(a, &m.Failures[i])
	}
	for i := range m.Leaves {
		c.leave(a, &m.Leaves[i])
	}
	for i := range m.Status {
		c.status(a, &m.Status[i])
	}
	for i := range m.Heads {
		c.head(&m.Heads[i])
	}
	for i := range m.Requests {
		c.request(a, &m.Requests[i])
	}
	for i := range m.Calls {
		c.cutCall(a, &m.Calls[i])
	}
	for i := range m.Yields {
		c.yieldsHeld(a, &m.Yields[i])
	}
}

// NextDataset is the number of the next new dataset.
func (c *Core) NextDataset() DatasetID { return c.nextDS }

// NextPartition is the number of the next new partition.
func (c *Core) NextPartition() PartitionNo { return c.nextPart }

func (c *Core) dataset(id DatasetID) *dataset {
	if int64(id) < int64(len(c.datasets)) {
		return c.datasets[id]
	}
	return nil
}

func (c *Core) partition(no PartitionNo) *partition {
	if int64(no) < int64(len(c.parts)) {
		return c.parts[no]
	}
	return nil
}

func (c *Core) reply(r Reply) {
	if r.To != 0 {
		c.fx.Replies = append(c.fx.Replies, r)
	}
}

func (c *Core) report(r Report) {
	if d := c.dataset(r.Dataset); d != nil {
		r.Name = d.name
	}
	if p := c.partition(r.Partition); p != nil {
		r.Label = p.label()
	}
	c.fx.Reports = append(c.fx.Reports, r)
}

func (c *Core) rejected(format string, args ...any) {
	c.report(Report{Kind: ReportRejected, Reason: fmt.Sprintf(format, args...)})
}

// put adds a put whose key and value were appended to the arena by write.
func (fx *Effects) put(op Op, key func([]byte) []byte, value func([]byte) []byte) {
	k := len(fx.arena)
	fx.arena = key(fx.arena)
	v := len(fx.arena)
	if value != nil {
		fx.arena = value(fx.arena)
	}
	p := Put{Op: op, Key: fx.arena[k:v:v]}
	if value != nil {
		p.Value = fx.arena[v:len(fx.arena):len(fx.arena)]
	}
	fx.Puts = append(fx.Puts, p)
}
