package hold

import pb "github.com/headrace/headrace/api/headrace/v1"

// Event is something that happened. Each is one of the types below.
type Event interface{ event() }

// Stream names one stream of one worker.
type Stream struct {
	Worker uint32 // the agent's number for the trainer process
	Number uint32 // the trainer's number for the stream, from 1
}

// Lease is our own name for a lease.
type Lease int64

// Token is the master's name for a lease. It stays the same over restarts of both.
type Token struct {
	Epoch, Term uint32
	Sequence    uint64
}

// Connected: a gRPC stream to the master is open; Hello is due.
type Connected struct{}

// Disconnected: it broke.
type Disconnected struct{}

// Received: the master has sent Message.
type Received struct{ Message *pb.MasterMessage }

// Tick: time has passed.
type Tick struct{}

// Join: a trainer process said HELLO. With Resume it comes from an agent (or a
// connection) before this one, and brings the batches that it still has.
type Join struct {
	Join   *pb.Join
	Resume []Resume
	Ended  bool // its process has ended; Resume is what its step files say, and Gone follows
}

// Resume is one stream that a trainer brings along.
type Resume struct {
	Stream  uint32
	Dataset uint32
	Virtual uint32 // as in Open
	Tracked bool
	Strict  bool
	Rounds  *Rounds // nil: none
	Stepped uint32  // batches stepped so far
	Acked   uint32  // batches known to be durable
	Batches []ResumedBatch
}

// ResumedBatch was received by the trainer and is not known to be durable.
type ResumedBatch struct {
	Number  uint32
	Rows    uint32
	Stepped bool
	Step    int64
	Spans   []Span
}

// Span is a piece of a lease in order space.
type Span struct {
	Token                    Token
	Dataset, Partition, Pass uint32
	Segment                  int64
	From, To                 int64
	Told                     bool // Tally counts its records
	Tally
}

// Open: a trainer opens a stream. Untracked streams are acked as they are delivered.
type Open struct {
	Stream  Stream
	Dataset uint32
	Virtual uint32 // bit_exact: which virtual rank's leases, from 1; 0: none's
	Tracked bool
	Strict  bool    // the dataset's order: no record leaves before those that precede it
	Rounds  *Rounds // nil: none
}

// Hungry: the stream's reader has read all that its leases cover and wants more.
type Hungry struct{ Stream Stream }

// Deliver asks whether whole batches may leave for the trainer now. The answer
// is Effects.Verdict; after Go they are delivered, whatever becomes of them.
type Deliver struct {
	Stream Stream
	Sizes  []int32 // how many Takes each batch has
	Takes  []Take  // of all batches, in order
}

// Take says that a batch takes the records of a lease up to To (order space), from
// where the one before it ended; Tally counts them.
type Take struct {
	Lease Lease
	To    int64
	Tally
}

// Consumed: the trainer has taken batches of an untracked stream (its credits
// came back); only rates need it.
type Consumed struct {
	Stream  Stream
	Batches uint32
}

// Exhausted: the lease was read to its end; no record begins in [Tail, end).
type Exhausted struct {
	Lease Lease
	Tail  int64
}

// HeadSeen: the lease's segment reaches up to Head by now (order space). Waits: all
// below Head was read, and the reader waits there.
type HeadSeen struct {
	Lease Lease
	Head  int64
	Waits bool
}

// Stepped: the oldest Batches unstepped batches of the stream are in the model.
// Steps grow over all streams of a worker; a step that comes again brings no batch.
type Stepped struct {
	Stream  Stream
	Step    int64
	Batches uint32 // 0 for an idle rank
	Through uint32 // batches stepped so far, these included; 0: not said
	More    bool   // batches of other streams follow that are in the same step
	Run     uint32 // so many steps, up to Step, each with Batches of them; 0 is 1
}

// Failed: the lease could not be read or decoded at At (order space).
type Failed struct {
	Lease     Lease
	At        int64
	Permanent bool
	Kind      string
	Message   string
	Lost      *pb.LostRange // with kind truncated
	Bad       []*pb.BadRecord
	Loose     bool // records after it need not wait for the rest of the lease
}

// Close: the stream is closed; the trainer uses none of its unstepped rows any more.
type Close struct{ Stream Stream }

// Gone: the worker's connection ended.
type Gone struct {
	Worker uint32
	Reason pb.Leave_Reason
	Ended  bool // its process is known to be gone
	Detail string
	Crash  bool // a signal that a crash raises has ended it
	// Unseen: nobody can see its process, so nobody will say later that it has ended.
	Unseen bool
}

// Call: a trainer asks something about cuts (docs/CUTS.md). Ids grow per worker.
type Call struct{ Call *pb.CutCall }

// YieldsPaused: the trainer yields nothing while yields are paused for Cut, and all that
// it was given is stepped.
type YieldsPaused struct {
	Worker uint32
	Cut    uint64
}

// Status carries a worker's totals, sent with the next message.
type Status struct{ Status *pb.WorkerStatus }

// Ping: a trainer asks how long the session is good. Effects.Session answers, or
// Effects.Mute.
type Ping struct{ Worker uint32 }

func (*Connected) event()    {}
func (*Disconnected) event() {}
func (*Received) event()     {}
func (*Tick) event()         {}
func (*Join) event()         {}
func (*Open) event()         {}
func (*Hungry) event()       {}
func (*Deliver) event()      {}
func (*Consumed) event()     {}
func (*Exhausted) event()    {}
func (*HeadSeen) event()     {}
func (*Stepped) event()      {}
func (*Failed) event()       {}
func (*Close) event()        {}
func (*Gone) event()         {}
func (*Status) event()       {}
func (*Call) event()         {}
func (*YieldsPaused) event() {}
func (*Ping) event()         {}
