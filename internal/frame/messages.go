package frame

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Hello opens a control connection (trainer to agent).
type Hello struct {
	Protocol    int           `json:"protocol"`
	Client      string        `json:"client"` // "headrace-python 0.1.0"
	Job         string        `json:"job"`    // "": whatever the agent serves
	Rank        uint32        `json:"rank"`
	WorldSize   uint32        `json:"world_size"`
	Attempt     uint32        `json:"attempt"`
	Incarnation Incarnation   `json:"incarnation"`
	PID         int32         `json:"pid"`
	MadeNS      int64         `json:"made_ns"`               // CLOCK_BOOTTIME when its init() made it; 0: unknown
	Generation  uint32        `json:"generation"`            // 0, or what it was told before
	ResumeFrom  string        `json:"resume_from,omitempty"` // ResumeBound, ...; "": the job's own
	Resume      []ResumeEntry `json:"resume,omitempty"`
}

// Incarnation is one process of a rank: a random number, 16 hex digits on the wire.
type Incarnation uint64

func (i Incarnation) String() string               { return fmt.Sprintf("%016x", uint64(i)) }
func (i Incarnation) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

func (i *Incarnation) UnmarshalText(b []byte) error {
	v, err := hex64("incarnation", b)
	*i = Incarnation(v)
	return err
}

func hex64(what string, b []byte) (uint64, error) {
	v, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil || len(b) != 16 {
		return 0, fmt.Errorf("%s %.40q is not 16 hex digits", what, b)
	}
	return v, nil
}

// Values of HELLO's resume_from: how a process wants to begin in a job that has trained
// before.
const (
	ResumeBound = "bound" // it restores first
	ResumeAcked = "acked" // shared only
	ResumeStart = "start" // everything is pending again
)

// ResumeEntry is one stream of a trainer that connects to an agent again.
type ResumeEntry struct {
	Stream  uint32        `json:"stream"`
	Open    Open          `json:"open"`
	Through uint32        `json:"through"` // batches stepped so far
	Acked   uint32        `json:"acked"`   // batches whose step is known to be durable
	Batches []ResumeBatch `json:"batches"` // received and not ACKED, in order
	Round   *Round        `json:"round,omitempty"`
}

// ResumeBatch is one received batch; Step is nil until it was stepped.
type ResumeBatch struct {
	Number uint32       `json:"number"`
	Step   *int64       `json:"step"`
	Rows   uint32       `json:"rows"`
	Spans  []ResumeSpan `json:"spans"`
}

// ResumeSpan is a piece of a lease in order space; on the wire an array of its
// fields in their order: nine integers, or twelve with those of its records.
type ResumeSpan struct {
	Epoch     uint32
	Term      uint32
	Sequence  uint64
	Dataset   uint32
	Partition uint32
	Pass      uint32
	Segment   int64
	LeaseFrom int64
	LeaseTo   int64
	Rows      int64
	Oldest    int64 // event times of its rows, ms; 0 and 0: none has one
	Newest    int64

	Told bool // the last three were there
}

const spanInts = 9

func (s ResumeSpan) MarshalJSON() ([]byte, error) {
	all := []any{s.Epoch, s.Term, s.Sequence, s.Dataset, s.Partition, s.Pass, s.Segment, s.LeaseFrom, s.LeaseTo, s.Rows, s.Oldest, s.Newest}
	if !s.Told {
		all = all[:spanInts]
	}
	return json.Marshal(all)
}

func (s *ResumeSpan) UnmarshalJSON(b []byte) error {
	var raw []json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	into := []any{&s.Epoch, &s.Term, &s.Sequence, &s.Dataset, &s.Partition, &s.Pass, &s.Segment, &s.LeaseFrom, &s.LeaseTo, &s.Rows, &s.Oldest, &s.Newest}
	if s.Told = len(raw) == len(into); !s.Told && len(raw) != spanInts {
		return fmt.Errorf("a span has %d integers, or %d, not %d", spanInts, len(into), len(raw))
	}
	for i, v := range raw {
		if err := json.Unmarshal(v, into[i]); err != nil {
			return err
		}
	}
	return nil
}

// Welcome answers HELLO.
type Welcome struct {
	Protocol     int       `json:"protocol"`
	Version      string    `json:"version"`
	Job          string    `json:"job"`
	Model        string    `json:"model"` // shared | replicated | private
	Generation   uint32    `json:"generation"`
	Epoch        uint32    `json:"epoch"`
	LastStep     int64     `json:"last_step"`
	TTLMillis    uint32    `json:"ttl_ms"`
	Agent        string    `json:"agent"`
	PendingAgain int64     `json:"pending_again"` // units that this join made pending again
	Again        *Again    `json:"again,omitempty"`
	Resumed      []Resumed `json:"resumed,omitempty"`
	ResumeFrom   string    `json:"resume_from,omitempty"` // as HELLO's; where that said nothing, what the job's datasets say
	StepRuns     bool      `json:"step_runs,omitempty"`   // STEP may have Run
	StepFiles    string    `json:"step_files,omitempty"`  // shared: the folder in which the trainer writes down its steps
	Replicas     int       `json:"replicas,omitempty"`    // copies of each checkpoint in memory that are made on other nodes
	Peers        bool      `json:"peers,omitempty"`       // the agent knows other nodes: CALL may be "peers"
}

// Again counts the records of units that became pending again.
type Again struct {
	Rows   int64 `json:"rows"`             // with Untold: at least so many
	Untold int64 `json:"untold,omitempty"` // units of whose records nobody told
}

// Resumed answers one ResumeEntry.
type Resumed struct {
	Stream  uint32 `json:"stream"`
	Refused bool   `json:"refused"`
	Reason  string `json:"reason"`
}

// Codes of ERROR.
const (
	CodeProtocol    = "protocol"
	CodeJob         = "job"
	CodeNotFound    = "not_found"
	CodeInvalid     = "invalid"
	CodeRefused     = "refused"
	CodeFailed      = "failed"
	CodeUnavailable = "unavailable"
)

// Error is a refusal with its reason and what to do.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + ": " + e.Hint
}

// Open asks for a stream of batches.
type Open struct {
	Dataset   string   `json:"dataset"`
	Rows      uint32   `json:"rows"`
	Columns   []string `json:"columns"`     // nil: all
	MaxWaitMS *int64   `json:"max_wait_ms"` // nil: wait for a full batch
	Ack       string   `json:"ack"`         // AckStep | AckAuto
	Track     bool     `json:"track"`
	Virtual   *uint32  `json:"virtual,omitempty"` // bit_exact: which virtual rank is read, from 0
	Rounds    *Rounds  `json:"rounds,omitempty"`  // the batches are rounds of a synchronous group
}

// Rounds is what an OPEN says of them (docs/ROUNDS.md).
type Rounds struct {
	Series    uint32 `json:"series"`         // the trainer's number of this run of rounds, from 1, the same on every rank
	MaxWaitMS int64  `json:"max_wait_ms"`    // how long rows wait for a full round; 0: for ever
	Tail      string `json:"tail,omitempty"` // TailDrop, or TailShort
}

// What becomes of rows that make no full round.
const (
	TailShort = ""     // a short one
	TailDrop  = "drop" // they wait for more; at the end of the input they are dropped
)

// Round says that every rank has the rounds up to Through, and may yield them. No round
// follows after Last, or if Over says why.
type Round struct {
	Through uint32 `json:"through"`
	Last    bool   `json:"last,omitempty"`
	Over    string `json:"over,omitempty"`
	// Rows of all ranks in the newest of these rounds: [how many rounds, rows of each].
	// The last run ends with round Through.
	Rows [][2]uint64 `json:"rows,omitempty"`
}

// RunsOf packs the rows of consecutive rounds as a Round has them. Example: 8, 8, 5 becomes
// [2, 8], [1, 5].
func RunsOf(rows []uint64) (runs [][2]uint64) {
	for _, n := range rows {
		if k := len(runs) - 1; k >= 0 && runs[k][1] == n {
			runs[k][0]++
		} else {
			runs = append(runs, [2]uint64{1, n})
		}
	}
	return runs
}

// RowsOf unpacks runs: the rows of the newest rounds, at most `most` of them.
func RowsOf(runs [][2]uint64, most int) (rows []uint64) {
	first := len(runs)
	for left := uint64(most); first > 0 && left > 0; {
		first--
		left -= min(left, runs[first][0])
	}
	for _, run := range runs[first:] {
		for range min(run[0], uint64(most)) {
			rows = append(rows, run[1])
		}
	}
	return rows[len(rows)-min(len(rows), most):]
}

const (
	AckStep = "step"
	AckAuto = "auto"
)

// Opened answers OPEN.
type Opened struct {
	Schema    Schema `json:"schema"`
	DatasetID uint32 `json:"dataset_id"`
	Unit      string `json:"unit"` // bytes | records | entries
	// VirtualRanks of a bit_exact dataset: only streams that say which of them they
	// read get batches.
	VirtualRanks uint32 `json:"virtual_ranks,omitempty"`
}

// Attach opens a data connection; the header names the stream.
type Attach struct {
	Incarnation Incarnation `json:"incarnation"`
	Regions     bool        `json:"regions,omitempty"` // frames may come in shared memory
}

// Ended begins a connection of `headrace run`: a trainer that it started has ended. Group is the
// trainer's process group.
type Ended struct {
	Group int  `json:"group"`
	Crash bool `json:"crash"` // by a signal that a crash raises, or by the kernel for want of memory
}

// Step says that the oldest Batches unstepped batches are in the model as of
// Step. Step is nil for a stream that is not tracked.
type Step struct {
	Step    *int64 `json:"step"`
	Batches uint32 `json:"batches"`
	Through uint32 `json:"through"`        // batches of this stream stepped so far, these included
	More    bool   `json:"more,omitempty"` // batches of other streams are in the same step; the last STEP of it says no more
	Run     uint32 `json:"run,omitempty"`  // the message stands for so many steps, up to Step, each with Batches; 0 is 1
}

// Acked says that the steps of the stream's first Through batches are durable.
type Acked struct {
	Through uint32 `json:"through"`
}

// Fenced says that this process does not belong to the group any more.
type Fenced struct {
	Reason string `json:"reason"`
}

// Quit tells the trainer to end now.
type Quit struct {
	Reason string `json:"reason"`
}

// Pause says that the stream makes no progress on purpose, or goes on.
type Pause struct {
	Paused bool   `json:"paused"`
	Why    string `json:"why"`
}

// Stats are totals of a stream.
type Stats struct {
	WaitSeconds float64 `json:"wait_seconds"`
	StepSeconds float64 `json:"step_seconds"`
	Rows        uint64  `json:"rows"`
}

// Ping is echoed by the other side. T has a meaning for its sender only.
type Ping struct {
	T json.Number `json:"t"`
}

// Pong echoes T. An agent's SessionMS says for how long its session with the master is
// still good, rounded up; 0 means that it is over.
type Pong struct {
	T         json.Number `json:"t"`
	SessionMS int64       `json:"session_ms"`
}

// States of STATE.
const (
	StateWait       = "wait"
	StateDrained    = "drained"
	StatePaused     = "paused"
	StateFailed     = "failed"
	StateRecovering = "recovering"
	StateDeleted    = "deleted"
	StateMasterLost = "master_lost"
	StateRestore    = "restore" // the job has a past: restore first
)

// State says what a waiting stream waits for; failed and deleted end it.
type State struct {
	State  string `json:"state"`
	Reason string `json:"reason"`
}

// PauseYields tells the trainer to hand out no further batch (On), or to go on. It is
// off when a connection begins.
type PauseYields struct {
	Cut CutID  `json:"cut"`
	On  bool   `json:"on"`
	Why string `json:"why"`
}

// YieldsPaused says that the trainer yields nothing and has stepped everything that it
// yielded. It is sent after those STEPs.
type YieldsPaused struct {
	Cut CutID `json:"cut"`
}
