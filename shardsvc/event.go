package shardsvc

import "github.com/headrace/headrace/sources"

// Time is nanoseconds on the shell's monotonic clock.
type Time int64

// Durations in Time's unit.
const (
	Millisecond Time = 1e6
	Second      Time = 1e9
)

// Session is the shell's handle of one agent stream: from 1, never used twice
// in a term. 0 is no session.
type Session uint32

// DatasetID and PartitionNo are durable numbers, unique in the job; the next
// free ones are Core.NextDataset and Core.NextPartition.
type (
	DatasetID   = uint32
	PartitionNo = uint32
)

// Token is one lease's fence; compared for equality only.
type Token struct {
	Epoch, Term uint32
	Sequence    uint64
}

// Event is one thing that happened. Events are pointers to structs, in this file,
// event_cut.go and landing.go. The core keeps no reference to an event, but it does keep
// the strings and byte slices in it (names, spec, locators): these must not be changed.
type Event interface{ event() }

// Start begins a new term, after all stored pairs were loaded. It must be the
// first event.
type Start struct{}

// Options of a dataset that the core follows. Sizes are in units of the source.
type Options struct {
	Passes  int  // at least 1
	Strict  bool // order: strict
	Shuffle bool
	Seed    uint64
	Block   int64 // units, with Shuffle
	// VirtualRanks, with Strict and Shuffle: each partition belongs to one virtual rank
	// (virtual.go). InOrder: the blocks keep the order of the input and are not permuted.
	VirtualRanks uint32
	InOrder      bool
	Initial      int64 // lease size before a rate is known
	Min          int64
	Max          int64
	Target       Time // a lease has about so much work, at the worker's own rate
	Stall        Time // 0: never
	// GoOnAfterLoss (on_loss: continue): records that the source has lost are excluded, and
	// the rest is read.
	GoOnAfterLoss bool
	// Pushed: its source's records come by Land, and only this ledger knows them.
	Pushed bool
	// MaxBad is how many bad records are excluded before the dataset stops; 0: no number is
	// set. MaxBadShare is the same limit as a share: bad records in a million.
	MaxBad, MaxBadShare int64
	Isolate             bool   // on_crash: isolate
	Unit                string // bytes | records | entries
	// Backfill is a second input of a dataset whose source has no end.
	Backfill Backfill
	// DropOld: records of the source that are too old are excluded (Aged).
	DropOld bool
	// Resume is how a process goes on if it does not say so itself. All datasets of a job
	// that set it must set the same, because the job has one model.
	Resume Resume
}

// ApplyDataset creates dataset ID (Core.NextDataset), or changes the spec,
// passes and lease sizes of an existing one. Order and shuffle of an existing
// one do not change: such a change is Rejected.
type ApplyDataset struct {
	ID      DatasetID
	Name    string
	Spec    []byte // opaque to the core, kept with the dataset
	Options Options
}

// RemoveDataset forgets a dataset: its leases are revoked, waiting requests are
// answered DELETED, its keys are deleted.
type RemoveDataset struct {
	ID DatasetID
	// Leftover: something of it is left at its source. The core keeps its name and spec until
	// SourceReleased.
	Leftover bool
}

// SourceReleased says that nothing of a removed dataset is left at its source.
type SourceReleased struct{ ID DatasetID }

// SetPaused stops or resumes grants. Resuming also clears FAILED and the counts
// of failed reads.
type SetPaused struct {
	ID     DatasetID
	Paused bool
}

// FailDataset stops a dataset with a reason that names the range.
type FailDataset struct {
	ID     DatasetID
	Reason string
}

// AddPartition makes a partition known. Number is Core.NextPartition.
type AddPartition struct {
	Dataset   DatasetID
	Number    PartitionNo
	Identity  string // sources.PartitionID
	Name      string // what people call it; empty: by its identity
	Estimated bool   // the source has no counts
}

// PartitionsListed says that a dataset gets no more partitions. END needs it.
type PartitionsListed struct{ Dataset DatasetID }

// AddSegments appends segments in order of ID. Only the last one of a partition
// may be unsealed; a segment after an unsealed one seals it. Segments known
// already are skipped. Complete: no segment will ever follow.
type AddSegments struct {
	Partition PartitionNo
	Segments  []sources.Segment
	Complete  bool
}

// Truncated says that the source no longer has [Start, End) of a segment, in its own
// coordinates. The parts of it that are neither settled nor leased are excluded, with
// Reason. Without Options.GoOnAfterLoss the dataset stops instead. The shell says it again
// and again, because a new term ignores it until it has recovered.
type Truncated struct {
	Partition  PartitionNo
	Segment    int64
	Start, End int64
	Reason     string
	When       int64 // ms since 1970
}

// Aged says which records of a partition are too old for Options.DropOld: those that begin
// before a place. They are excluded, unless they are settled or leased. The shell says it
// again and again, because age grows and the core has no clock for it. It is not durable: a
// new term grants nothing of the partition until it is told. So no record that became too
// old while no master ran is granted.
type Aged struct {
	Partition       PartitionNo
	Segment, Offset int64
	Reason          string
	When            int64 // ms since 1970
}

// Lost says that a session's stream broke. The agent's TTL still counts from when it was
// last heard.
type Lost struct{ Session Session }

// Tick says that time has passed, and that the inbox was drained after the last wake. Only
// a Tick expires sessions. Blocked is how long the loop was blocked since the last Tick;
// it is added to all deadlines.
type Tick struct{ Blocked Time }

// Message is one AgentMessage; its fields take effect in their order. A message
// of a session without Hello before is ignored.
type Message struct {
	Session  Session
	SentAt   Time // on the clock of the agent's node; 0: not said
	Hello    *Hello
	Joins    []Join
	Held     []Held // with Hello, or later for trainers that came back later
	Acks     []Ack
	Steps    []StepReport
	Answers  []StealAnswer
	Releases []Release
	Failures []ReadFailure
	Leaves   []Leave
	Status   []WorkerStatus
	Heads    []Head
	Requests []LeaseRequest
	Calls    []CutCall
	Yields   []YieldsPaused
	Rounds   []RoundReport
}

// Hello opens a session. The same incarnation as before resumes. Another one supersedes the
// old one; the workers of the old one may join again until its TTL has passed.
type Hello struct {
	Agent       string
	Incarnation uint64
	Clock       uint64 // names the clock of SentAt: agents with the same one read one clock; 0: unknown
}

// Join attaches a trainer process. A process that comes again, with the same rank and
// incarnation, speaks for everything that it holds: if its Message has no Held for a
// lease, that lease is pending again.
type Join struct {
	Worker      uint32
	Rank        uint32
	Incarnation uint64
	WorldSize   uint32
	Generation  uint32
	Pid         int32
	Resume      Resume
	MadeAt      Time // when its process was made, on the clock of SentAt; 0: unknown
}

type Held struct {
	Token      Token
	Worker     uint32
	Dataset    DatasetID
	Partition  PartitionNo
	Pass       uint32
	Segment    int64
	Start, End int64
	Frontier   int64
}

type Ack struct {
	Token  Token
	Prefix int64
	Step   int64

	Told                 bool  // the records of [From, Prefix) were counted
	From                 int64 // the count is worth nothing unless the lease is acked exactly up to here
	Rows, Oldest, Newest int64 // see cut.Tally
}

type StepReport struct {
	Worker uint32
	Step   int64
}

type StealAnswer struct {
	Token   Token
	Refused bool
	At      int64
}

type Release struct {
	Token  Token
	Prefix int64
}

type ReadFailure struct {
	Token     Token
	At        int64
	Permanent bool
	Away      bool   // the source did not answer
	Kind      string // for people
	Message   string
	Lost      *LostRange  // exactly what the source no longer has
	Bad       []BadRecord // records that cannot be decoded
	When      int64       // ms since 1970
}

// BadRecord is a record that was read and cannot be decoded, in the source's own
// coordinates. Its Value may be only the beginning: Size is the length of the whole.
// Size -1: nothing of it could be read. Form is empty if Value is the record as it was read.
type BadRecord struct {
	Segment, Start, End  int64
	Column, Kind, Reason string
	Value, Key           []byte
	Size                 int64
	Form                 string // "json": Value is a row of a file of columns, written as JSON
}

// LettersWritten says that dead letters are durable where the dataset wants them: the
// first Count of those that Letters gives. The core forgets their bytes.
type LettersWritten struct {
	Dataset DatasetID
	Count   int
}

// LostRange is in the source's own coordinates.
type LostRange struct{ Segment, Start, End int64 }

// LeaveReason has the numbers of the wire.
type LeaveReason uint8

const (
	LeaveUnknown LeaveReason = iota
	LeaveClosed
	LeaveExited
	LeaveKilled
	LeaveLost
)

type Leave struct {
	Worker uint32
	Reason LeaveReason
	Ended  bool
	Crash  *Crash // nil: it did not crash, as far as is known
}

// Crash says which records a process had in hand, not stepped, when it crashed.
type Crash struct {
	Suspects []Suspect
	Alone    bool // they are one record
}

// Suspect is a range of them in order space.
type Suspect struct {
	Dataset    DatasetID
	Partition  PartitionNo
	Pass       uint32
	Segment    int64
	Start, End int64
}

// WorkerStatus carries what the core needs and what it shows in Workers.
type WorkerStatus struct {
	Worker      uint32
	Paused      bool
	WaitSeconds float64
	StepSeconds float64
	RowsYielded uint64
}

// Head is a new end of an unsealed segment. If the core knows a later end already, it
// changes nothing.
type Head struct {
	Partition PartitionNo
	Segment   int64
	End       int64
	Sealed    bool
	Fallen    bool // the end is lower than it was, for good: the records above it are lost
}

type LeaseRequest struct {
	ID           uint64
	Worker       uint32
	Dataset      DatasetID
	Rate         float64 // units/s of the source
	Count        uint32
	BackfillRate float64 // units/s of the backfill
	Virtual      uint32  // which virtual rank's leases, from 1; 0 where there is none
}

// Reclaim takes back what the process of a rank holds, without its help: the process is
// fenced. It is Rejected with the reason, for example if the model is shared.
type Reclaim struct {
	Rank        uint32
	Incarnation uint64 // of the process that is meant; 0: whichever has the rank
}

// Heads is Head from the master's own discovery.
type Heads struct{ Heads []Head }

func (*Start) event()            {}
func (*ApplyDataset) event()     {}
func (*RemoveDataset) event()    {}
func (*SourceReleased) event()   {}
func (*SetPaused) event()        {}
func (*FailDataset) event()      {}
func (*AddPartition) event()     {}
func (*PartitionsListed) event() {}
func (*AddSegments) event()      {}
func (*Heads) event()            {}
func (*Reclaim) event()          {}
func (*Truncated) event()        {}
func (*Aged) event()             {}
func (*LettersWritten) event()   {}
func (*Lost) event()             {}
func (*Tick) event()             {}
func (*Message) event()          {}

// Trim says that the source has deleted all records of a partition before a segment. The
// table of segments need not list those segments one by one any more. The core trims only
// what is settled and lies below the retain mark (trimmable), so an early Trim does no
// harm. The same goes for segments that the source can do without (sources.Forgetter).
//
// A run of trimmed segments becomes one. It keeps the number, the name and the end of the
// last of them, begins as far before it as the others had records, and has no locator.
// Example: segments 4, 5 and 6 of 10 records each become segment 6, [-20, 10). So every
// position that is named anywhere keeps its meaning, and no segment gets another number.
//
// A segment that is named by the position of a kept cut, by an excluded or dropped range,
// or by a try stays in the table. It loses only its locator.
type Trim struct {
	Partition PartitionNo
	Before    int64   // segment
	Needed    []int64 // segments before that, in order, that the source still needs: they stay as they are
}

func (*Trim) event() {}
