package hold

import (
	"time"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// Verdict answers Deliver.
type Verdict uint8

const (
	None      Verdict = iota
	Go                // delivered: send it
	Shortened         // a lease ends before the frame does: cut the batches again
	Untrusted         // the session is not good now: ask again after Live
	Over              // the worker is fenced, ending or gone: never
)

// Effects is what the shell has to do after a Step, in the order of its fields.
// It is reused: Reset before each Step.
type Effects struct {
	Verdict Verdict
	Pace    float64       // with Verdict Go: batches per second of this trainer, 0 unknown
	Invalid string        // why the event was refused (it came from a trainer); nothing changed
	Session time.Duration // answers Ping: how long the session is good; 0: it is over
	Mute    bool          // Ping is not answered: its sender is being ended

	Send      []*pb.AgentMessage
	Reconnect string // break the stream and connect again; why

	Joined    []Joined
	Grants    []Granted
	Ends      []LeaseEnd
	Acked     []Acked
	Answers   []*pb.CutReply
	States    []StateOf
	Fenced    []WorkerReason
	Pauses    []PauseYields
	Rounds    []Round
	Kill      []WorkerReason // end that process for sure, then say Gone
	Forgotten []uint32       // workers that have left and have nothing open any more
	Live      bool           // the session is good again: Deliver may be asked
	Greeted   bool           // the master has answered Hello
}

// Joined answers Join.
type Joined struct {
	Worker            uint32
	Refused           bool
	Superseded        bool // with Refused: a process that was made later has joined
	Reason            string
	Generation, Epoch uint32
	LastStep          int64
	PendingAgain      int64
	Again             *pb.Tally // the records in it; nil: not counted
	Resumed           []ResumeReply
	Resume            pb.Join_Resume // as the master takes it
	Model, Job        string
	TTLMillis         uint32
}

// ResumeReply answers one Resume.
type ResumeReply struct {
	Stream  uint32
	Refused bool
	Reason  string
}

// Granted is a lease to read.
type Granted struct {
	Stream   Stream
	Lease    Lease
	Token    Token
	Grant    *pb.Grant
	Standing pb.Standing_State // of the stream's other requests, if it has any
}

// LeaseEnd: the lease now ends at End (order space): rows from there on are
// dropped. A revoked lease ends where it was delivered.
type LeaseEnd struct {
	Stream Stream
	Lease  Lease
	End    int64
}

// Acked: the first Through batches of the stream are durable.
type Acked struct {
	Stream  Stream
	Through uint32
}

// StateOf says what a stream waits for; pb.Standing_END ends it.
type StateOf struct {
	Stream Stream
	State  pb.Standing_State
	Reason string
}

// WorkerReason is about one worker.
type WorkerReason struct {
	Worker uint32
	Reason string
}

// Reset empties e and keeps its memory.
func (e *Effects) Reset() {
	clear(e.Send)
	clear(e.Grants)
	clear(e.Joined)
	clear(e.Answers)
	*e = Effects{
		Send: e.Send[:0], Joined: e.Joined[:0], Grants: e.Grants[:0], Ends: e.Ends[:0],
		Acked: e.Acked[:0], Answers: e.Answers[:0], States: e.States[:0], Fenced: e.Fenced[:0], Pauses: e.Pauses[:0], Rounds: e.Rounds[:0], Kill: e.Kill[:0], Forgotten: e.Forgotten[:0],
	}
}
