package wire

import "github.com/headrace/headrace/shardsvc"

// Message is one AgentMessage. Reuse it after Reset.
type Message struct {
	Event    shardsvc.Message // for Step; the caller sets its Session, and echoes its SentAt once it is durable
	About    *About           // set if Event.Hello is
	Refusals []Refusal        // calls that are refused without asking the core; answer them after Event
	Notes    []Note           // for the log
}

// Note is why an agent released a lease, or how a worker's process ended.
type Note struct {
	Token  shardsvc.Token // of the lease that was released, or zero
	Worker uint32         // the worker that left
	Why    string
}

// About is what an agent says about itself in its hello.
type About struct {
	Name, Job, Version, Host string
	Protocol                 uint32
	Pid                      int32
	Gpus                     []string
}

// Reset empties m and keeps its memory. The core keeps strings, and slices inside calls,
// which are not reused. It keeps none of the slices that are reused here.
func (m *Message) Reset() {
	e := &m.Event
	clear(e.Releases)
	clear(e.Failures)
	clear(e.Leaves)
	clear(e.Calls)
	clear(m.Refusals)
	clear(m.Notes)
	*m = Message{Refusals: m.Refusals[:0], Notes: m.Notes[:0], Event: shardsvc.Message{
		Joins: e.Joins[:0], Held: e.Held[:0], Acks: e.Acks[:0], Steps: e.Steps[:0], Answers: e.Answers[:0],
		Releases: e.Releases[:0], Failures: e.Failures[:0], Leaves: e.Leaves[:0], Status: e.Status[:0],
		Heads: e.Heads[:0], Requests: e.Requests[:0], Calls: e.Calls[:0], Yields: e.Yields[:0],
		Rounds: e.Rounds[:0],
	}}
}

// Size is how many changes the message may make.
func (m *Message) Size() int {
	e := &m.Event
	return len(e.Joins) + len(e.Held) + len(e.Acks) + len(e.Steps) + len(e.Answers) + len(e.Releases) +
		len(e.Failures) + len(e.Leaves) + len(e.Status) + len(e.Heads) + len(e.Requests) + len(e.Calls) + len(e.Yields) + len(e.Rounds)
}
