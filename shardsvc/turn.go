package shardsvc

import "slices"

// turn is the state that all rooms share: the configuration of the job, how far its life
// has come, and the Step that runs now.
type turn struct {
	cfg   Config
	model model

	started    bool
	recovering bool // a new term waits for workers that may hold leases
	term       uint32
	epoch      uint32
	generation uint32 // replicated: 0 before the first; else always 1
	genEnded   bool   // nothing is granted or acked until the next one starts
	jobDirty   bool   // what is stored of the job has changed

	now     Time // shell's time minus blocked
	shell   Time // shell's time
	blocked Time // sum of what Ticks reported

	timers timerHeap
	fx     *Effects // during a Step
	stats  JobInfo  // counters
}

// newEpoch begins an epoch that is higher than the present one, and than the given one.
// Tokens of older epochs mean nothing from now on.
func (t *turn) newEpoch(above uint32) { t.epoch, t.jobDirty = max(t.epoch, above)+1, true }

func (t *turn) reply(r Reply) {
	if r.To != 0 {
		t.fx.Replies = append(t.fx.Replies, r)
	}
}

// speaker is an agent, to which replies go. It speaks for the processes of its node.
type speaker struct {
	name    string
	session Session // 0: lost
}

// newReply appends a reply that is written in place: a Reply is too large to copy on the hot
// path.
func (t *turn) newReply() *Reply {
	all := t.fx.Replies
	if len(all) == cap(all) {
		all = slices.Grow(all, 1)
	}
	t.fx.Replies = all[:len(all)+1]
	return &t.fx.Replies[len(all)] // empty, because Reset clears the replies before it takes their memory back
}

// Config of a core. Zero durations and counts take their defaults.
type Config struct {
	Job   string
	Model string // shared | replicated | private | "" (undeclared: like shared)

	SessionTTL Time  // default 5 s
	LostAfter  Time  // shared: an agent that was not heard for so long is lost, with its trainers; SessionTTL (the default) or more
	History    int64 // the acks of so many steps do not fold, so that a cut can be asked for at each of them; default 128
	Ahead      int   // if fewer segments are listed beyond the frontier, more are asked for; default 64
}

func (cfg Config) withDefaults() Config {
	if cfg.SessionTTL == 0 {
		cfg.SessionTTL = 5 * Second
	}
	if cfg.LostAfter < cfg.SessionTTL || cfg.Model != Shared {
		cfg.LostAfter = cfg.SessionTTL
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

// model has the facts in which the model kinds differ. kind.go has what each kind does by
// code of its own.
type model struct {
	byStep  bool // not shared: the model ends with its processes, and a cut holds the records that were acked up to a step
	perRank bool // private: each rank has a model, steps and cuts of its own
	inStep  bool // replicated: all ranks train one model, and count the same steps
}

func modelOf(kind string) model {
	private, replicated := kind == Private, kind == Replicated
	return model{byStep: private || replicated, perRank: private, inStep: replicated}
}

// Never is the wake of a core that waits for nothing but events.
const Never = Time(1<<63 - 1)

type JobInfo struct {
	Job, Model                              string
	Term, Epoch, Generation, WorldSize      uint32
	Recovering                              bool
	Grants, Acks, Refused, Reclaims, Steals uint64
}
