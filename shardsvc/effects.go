package shardsvc

import (
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/rounds"
)

// Effects is what a run of Steps, closed by one Flush, asks the shell to do:
// commit all Puts atomically, then send the Replies in their order, then log
// the Reports. It is reused: Reset keeps the memory. The byte slices in Puts
// live until Reset.
type Effects struct {
	Puts    []Put
	Replies []Reply
	Reports []Report
	Pieces  []Piece // of the grants among Replies

	arena []byte
}

// Reset empties fx and keeps its memory.
func (fx *Effects) Reset() {
	clear(fx.Replies) // they hold strings
	clear(fx.Reports)
	clear(fx.Pieces)
	fx.Puts, fx.Replies, fx.Reports, fx.Pieces, fx.arena = fx.Puts[:0], fx.Replies[:0], fx.Reports[:0], fx.Pieces[:0], fx.arena[:0]
}

// Op says what a Put does.
type Op uint8

const (
	Set         Op = iota // Key has Value from now on
	Delete                // Key is gone
	DeleteRange           // all keys in [Key, Value) are gone
)

// Put is one change of the store. Changes of a batch take effect in their order.
type Put struct {
	Op         Op
	Key, Value []byte
}

// ReplyKind says which fields of a Reply mean something. Their order is that of the fields
// of MasterMessage.
type ReplyKind uint8

const (
	// ReplyHello: Term, Epoch, Generation. After it come the ReplyJoin of the same message,
	// and then its ReplyHeld, in the order of its Held.
	ReplyHello ReplyKind = iota + 1
	// ReplyHeld: Token, Refused, Reason, Prefix, End. Without a ReplyHello
	// before it, it answers a Held in a later message.
	ReplyHeld
	// ReplyJoin: Worker, Refused, Join, Reason, Generation, Epoch, Step, Units, Again.
	ReplyJoin
	// ReplyAck: Token, Prefix, Code, Reason.
	ReplyAck
	// ReplySteal: Token, At.
	ReplySteal
	// ReplyRevoke: Token, Reason.
	ReplyRevoke
	// ReplyEnd: Worker, Reason.
	ReplyEnd
	// ReplyFence: Worker, Reason.
	ReplyFence
	// ReplyGrant: Request, Token, Worker, Dataset, Partition, Identity, Pass,
	// Segment, Start, End, Tries, Suspicion, Backfill, Leads, At, and its pieces: Effects.Pieces[PieceLo:PieceHi].
	ReplyGrant
	// ReplyStanding: Request, Worker, Dataset, State, Reason.
	ReplyStanding
	// ReplyClose: close the stream: Close, Reason.
	ReplyClose
	// ReplyCut answers a CutCall: Worker, Request (the call's ID), Reason, Step,
	// Epoch, Units (pending again), Again, and Cut.
	ReplyCut
	// ReplyPause: Worker, Cut.Cut, Reason: hand it no further batch; Refused: the
	// pause has ended.
	ReplyPause
	// ReplyRound: Worker, Dataset, Request (the series) and Round.
	ReplyRound
)

// Code of a ReplyAck, with the numbers of the wire.
type Code uint8

const (
	Durable Code = iota
	Stale
	Invalid
)

// String returns the word of the metric's label.
func (c Code) String() string {
	return [...]string{Durable: "durable", Stale: "stale", Invalid: "invalid"}[c]
}

// CloseCode says why a ReplyClose closes a stream.
type CloseCode uint8

const (
	CloseReplaced CloseCode = iota // a newer stream or process of this agent took over
	CloseExpired                   // nothing was heard for the TTL: the agent may say hello again
)

// JoinRefusal says why a ReplyJoin is refused, with the numbers of the wire.
type JoinRefusal uint8

const (
	JoinRefused    JoinRefusal = iota
	JoinSuperseded             // a process that was made later has joined
)

// State of a ReplyStanding, with the numbers of the wire.
type State uint8

const (
	Wait State = iota
	Drained
	End
	Paused
	Failed
	Recovering
	Deleted
	Restoring // RESTORE on the wire: the job has a past; Reason says who must restore
)

// CutCode of a CutAnswer, with the numbers of the wire.
type CutCode uint8

const (
	CutOK CutCode = iota
	CutRefused
	CutFenced
	CutTry     // restore: a newer bound cut is at Path
	CutTimeout // ask, pause: not complete by its deadline; Reason names the ranks that did not report
	CutAgain   // restore: it cannot be decided yet, because of Reason: the caller says it again
)

// CutAnswer is the rest of a ReplyCut.
type CutAnswer struct {
	Code CutCode
	Why  Refusal  // restore, CutRefused
	Cut  uint64   // ask: the cut, perhaps one that another rank asked for; restore: the choice, 0 is the start
	Path string   // CutTry: of the newer cut; restore: of the choice
	Body *cut.Cut // ask: the cut
}

// RoundAnswer is the rest of a ReplyRound.
type RoundAnswer struct {
	rounds.Decision
	Virtual uint32   // the virtual rank of the stream, from 1; 0: none
	Rows    []uint64 // the rows of all ranks, for each round that the receiver was not told yet
}

// Reply goes to one session. Replies of a session keep their order: a shell
// that gathers several into one message starts a new message when a Revoke,
// End, Fence or Join would be moved before a Grant that precedes it.
type Reply struct {
	To               Session
	Kind             ReplyKind
	Code             Code
	State            State
	Close            CloseCode
	Join             JoinRefusal
	Suspicion        Suspicion
	Resume           Resume // JOIN: what the process said, or else its datasets
	Refused          bool
	Backfill         bool
	Leads            bool // the lease ends ahead of head; At is head
	Worker           uint32
	Dataset          DatasetID
	Partition        PartitionNo
	Pass             uint32
	Tries            uint32
	Term             uint32
	Epoch            uint32
	Generation       uint32
	PieceLo, PieceHi int32
	Request          uint64
	Token            Token
	Segment          int64
	Start, End       int64
	Prefix           int64
	At               int64
	Step             int64
	Units            int64
	Identity         string
	Reason           string
	Cut              *CutAnswer
	Round            *RoundAnswer
	Again            *cut.Tally // the records in Units; nil: Units is 0
}

// Piece is a part of a grant in the source's own coordinates.
type Piece struct {
	OrderStart int64
	Segment    int64
	Start, End int64
	Locator    []byte
	Name       string
}

// ReportKind names what a Report is about.
type ReportKind uint8

const (
	ReportReclaimed ReportKind = iota + 1 // leased rows are pending again; Reclaimed says why
	ReportStealAsked
	ReportStolen       // Start..End is pending, taken from Rank
	ReportStealRefused // the holder keeps Start..End
	ReportAckRefused   // Code and Reason say why
	ReportDatasetDone  // every record is settled
	ReportPassDone     // of one partition
	ReportDatasetFailed
	ReportDiverged     // head below planned: Start..End is gone
	ReportNeedSegments // few listed segments remain; Segment: the last one known, -1 if none
	ReportGeneration   // Units: the generation
	ReportGenerationEnded
	ReportPendingAgain // Units of Rank are pending again
	ReportStalled
	ReportExpired // an agent's session TTL passed
	ReportGivenUp // a process was not heard of for too long: records that it had stepped without the master hearing of it come again
	ReportRecovered
	ReportHeldRefused
	ReportRejected // an event made no sense; Reason says why and nothing changed
	ReportFenced
	ReportExcluded       // Start..End of the source is settled and in no model; Bad, Old, Reason
	ReportReadmitted     // Start..End of the source was excluded, and is in the model that the job goes on with
	ReportCutFrozen      // Cut, Rank, Step, Path
	ReportCutBound       // Cut, Rank, Step, Path
	ReportCutMemory      // Cut, Rank, Step, Path: a cut that was not asked for with Memory lies in memory, as a restore says
	ReportCutVoided      // Cut, Rank, Step, Path, Reason
	ReportCutDropped     // Cut, Rank, Step, Path, Reason
	ReportResolveCut     // look at Path for a valid manifest of Cut, answer with a ResolveCut
	ReportRestored       // a generation, or Rank, went back to Cut (0: the start); Units are pending again
	ReportRewound        // somebody went back to Cut (0: the start); Units are pending again
	ReportRestoreMissing // not all ranks restored by the deadline; Reason names them
	ReportRestoreWaits   // Rank's restore waits until it is known whether others train; Reason names them
	ReportRoundsDropped  // Units of a dataset that are in no full round are settled, at Step
	ReportPushedLost     // pushed records of Partition that a restored cut does not name are lost
	ReportPauseEnded     // Rank's pause of yields for Cut has ended; Reason, if that was before the freeze
)

// Report is for the log and metrics. Fields that do not apply are zero.
type Report struct {
	Kind        ReportKind
	Dataset     DatasetID
	Partition   PartitionNo
	Name        string // of the dataset, for people; empty if it is not there any more
	Label       string // of the partition, for people
	Pass        uint32
	Rank        uint32
	Incarnation uint64 // ReportGivenUp; 0: any earlier process of the rank
	Segment     int64
	Start, End  int64
	Units       int64
	Records     cut.Tally // in Units, where these are pending again
	Token       Token
	Agent       string
	Reason      string
	Reclaimed   Reclaimed // ReportReclaimed
	Code        Code      // ReportAckRefused
	Lost        bool      // ReportDatasetFailed: the source has lost records
	Bad         bool      // ReportExcluded: a record that cannot be decoded
	Old         bool      // ReportExcluded: records that are too old
	Over        bool      // ReportGenerationEnded, ReportRestored: no process of the group before was left when a new group came
	Cut         uint64
	Step        int64
	Path        string
}

// Why returns why it happened, for the log.
func (r *Report) Why() string {
	if r.Kind == ReportReclaimed {
		return r.Reclaimed.String()
	}
	return r.Reason
}

// put adds a put. key and value append their bytes to the arena.
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

// Suspicion says whether a record of a range may crash its trainer (suspect.go).
type Suspicion uint8

const (
	NoSuspicion Suspicion = iota
	Suspected             // a trainer crashed with it in hand
	FailedAlone           // and one with nothing else in hand
	Convicted             // and another one: exclude it
)

// comesAgain counts what was acked and is pending again.
type comesAgain struct {
	units     int64
	cut.Tally // its times are not kept
}

func (a *comesAgain) add(b comesAgain) {
	a.units += b.units
	a.Tally.Add(b.Tally)
}

// reply gives a in the form of Reply.Again; nil: nothing comes again.
func (a comesAgain) reply() *cut.Tally {
	if a.units == 0 {
		return nil
	}
	return &a.Tally
}
