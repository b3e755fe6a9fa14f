package shardsvc

// Config of a core. Zero durations and counts take the defaults of withDefaults.
type Config struct {
	Job   string
	Model string // shared | replicated | private | "" (undeclared: like shared)

	SessionTTL Time  // default 5 s
	History    int64 // steps that stay apart for cuts; default 128
	Ahead      int   // segments listed beyond the frontier below which more are asked for; default 64
}

// Never is the wake of a core that waits for nothing but events.
const Never = Time(1<<63 - 1)

// New makes an empty core. Load every stored pair, then Step a *Start.
func New(cfg Config) *Core { return &Core{cfg: cfg} }

// Load takes one stored pair; call it for all keys in order, before Start.
func (c *Core) Load(key, value []byte) error { return nil }

// Step applies one event. It appends to fx and returns when it wants a Tick.
// now never goes back. What became dirty is encoded by Flush.
func (c *Core) Step(now Time, ev Event, fx *Effects) (wake Time) { return Never }

// Flush encodes all that changed since the last Flush into fx.Puts, once per
// key however many Steps changed it. Call it before committing fx.
func (c *Core) Flush(fx *Effects) {}

func (c *Core) NextDataset() DatasetID     { return 1 }
func (c *Core) NextPartition() PartitionNo { return 1 }

func (c *Core) Job() JobInfo                                              { return JobInfo{} }
func (c *Core) Datasets() []DatasetInfo                                   { return nil }
func (c *Core) Dataset(id DatasetID) (DatasetInfo, bool)                  { return DatasetInfo{}, false }
func (c *Core) Partitions(id DatasetID) []PartitionInfo                   { return nil }
func (c *Core) State(id DatasetID, after PartitionNo, max int) []PassInfo { return nil }
func (c *Core) Agents() []AgentInfo                                       { return nil }
func (c *Core) Workers() []WorkerInfo                                     { return nil }
func (c *Core) CheckInvariants() error                                    { return nil }

// Core is the state machine. One goroutine uses it.
type Core struct{ cfg Config }
