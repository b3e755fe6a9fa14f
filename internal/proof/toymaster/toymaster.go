// Package toymaster is a small master for tests of the agent. It grants pieces of one dataset in order,
// stores acks, and takes back the leases of lost workers. A test tells it to do what a real master
// does by itself: steal, fence, end a worker, forget everything but what is settled. It has no clock:
// the test says when something has expired.
package toymaster

import (
	"fmt"
	"slices"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// Segment is a segment of the only partition.
type Segment struct {
	ID, Start, End int64
	Locator        []byte
	Name           string
}

// Master is the state of the master. It is not safe for concurrent use.
type Master struct {
	Job, Model string
	TTLMillis  uint32
	Dataset    uint32
	Identity   string
	Units      int64 // size of a lease
	Term       uint32
	Epoch      uint32

	pending  []span
	settled  map[int64][]span // by segment
	acked    []Settled        // the same pieces, with trainer and step
	reported map[uint64]int64 // newest step by trainer (its incarnation)
	cuts     cuts
	total    int64
	segments map[int64]Segment
	leases   map[token]*lease
	order    []token
	sequence uint64
	sessions []*Session
	waiting  []waiting

	Acks   []*pb.Ack // in the order they came
	Steps  []*pb.StepReport
	Fails  []*pb.ReadFailure
	Leaves []*pb.Leave
	Stolen []*pb.StealAnswer
	Failed string // why the dataset was stopped

	// Restore: nothing is granted until a trainer has restored.
	Restore bool
	Calls   []*pb.CutCall // in the order they came, with repeats
}

type token struct {
	epoch, term uint32
	sequence    uint64
}

type span struct{ segment, start, end int64 }

type lease struct {
	span
	prefix int64
	by     holder
}

type holder struct {
	session *Session
	agent   string
	worker  uint32
}

type waiting struct {
	by      holder
	request uint64
	state   pb.Standing_State
	told    bool
}

// Session is one stream of an agent. Send receives the master's messages on it.
type Session struct {
	Send    func(*pb.MasterMessage)
	agent   string
	life    uint64 // the agent's incarnation
	workers map[uint32]*pb.Join
	gone    bool
}

// trainer gives the incarnation of the trainer that is this worker of the agent.
func (s *Session) trainer(worker uint32) uint64 { return s.workers[worker].GetIncarnation() }

// New makes a master that plans the segments in this order.
func New(model string, segments ...Segment) *Master {
	m := &Master{
		Job: "toy", Model: model, TTLMillis: 5000, Dataset: 1, Identity: "toy", Units: 100, Term: 1, Epoch: 1,
		settled: map[int64][]span{}, reported: map[uint64]int64{}, segments: map[int64]Segment{}, leases: map[token]*lease{},
	}
	for _, s := range segments {
		m.segments[s.ID] = s
		m.pending = append(m.pending, span{s.ID, s.Start, s.End})
		m.total += s.End - s.Start
	}
	return m
}

// Open begins a new stream. Its first message must be Hello.
func (m *Master) Open(send func(*pb.MasterMessage)) *Session {
	s := &Session{Send: send, workers: map[uint32]*pb.Join{}}
	m.sessions = append(m.sessions, s)
	return s
}

// Close says that the stream broke. Leases stay until Expire.
func (m *Master) Close(s *Session) {
	s.gone = true
	m.waiting = slices.DeleteFunc(m.waiting, func(w waiting) bool { return w.by.session == s })
	m.sessions = slices.DeleteFunc(m.sessions, func(o *Session) bool { return o == s })
}

// Restart forgets what is not durable: leases and requests. The agents must open new streams.
func (m *Master) Restart() {
	m.Term++
	for _, l := range m.leases {
		m.giveBack(l.span.from(l.prefix))
	}
	m.leases, m.order, m.waiting, m.sessions = map[token]*lease{}, nil, nil, nil
	m.cuts.asked, m.cuts.paused = nil, nil
}

// Detach gives the streams, and Attach takes them over after a Restart that the agents do not notice.
func (m *Master) Detach() []*Session { return m.sessions }

// Attach is the other half of Detach.
func (m *Master) Attach(s []*Session) { m.sessions = s }

func (s span) from(prefix int64) span { s.start = max(s.start, prefix); return s }

func (m *Master) giveBack(s span) {
	if s.start < s.end {
		m.pending = append(m.pending, s)
		slices.SortFunc(m.pending, func(a, b span) int { return cmpSpan(a, b) })
	}
}

func cmpSpan(a, b span) int {
	if a.segment != b.segment {
		return int(a.segment - b.segment)
	}
	return int(min(1, max(-1, a.start-b.start)))
}

// Handle applies one message of an agent and answers it.
func (m *Master) Handle(s *Session, in *pb.AgentMessage) {
	out := &pb.MasterMessage{Echo: in.SentAt, Term: m.Term}
	if in.Hello != nil {
		s.agent, s.life = in.Hello.Agent, in.Hello.Incarnation
		out.Hello = &pb.HelloReply{Protocol: 1, Job: m.Job, Model: m.Model, Term: m.Term, Epoch: m.Epoch, SessionTtlMs: m.TTLMillis, Master: "toy"}
	}
	for _, j := range in.Joins {
		s.workers[j.Worker] = j
		out.Joins = append(out.Joins, &pb.JoinReply{Worker: j.Worker, Generation: max(1, j.Generation), Epoch: m.Epoch})
	}
	if in.Hello != nil {
		m.reassert(s, in.Held, out.Hello)
	}
	for _, a := range in.Acks {
		m.ack(s.trainer(a.Worker), a, out)
	}
	for _, r := range in.Steps {
		m.Steps = append(m.Steps, r)
		by := s.trainer(r.Worker)
		m.reported[by] = max(m.reported[by], r.Step)
	}
	for _, a := range in.StealAnswers {
		m.Stolen = append(m.Stolen, a)
		if l := m.leases[key(a.Token)]; l != nil && !a.Refused {
			m.giveBack(span{l.segment, a.At, l.end})
			l.end = a.At
			m.finish(key(a.Token))
		}
	}
	for _, r := range in.Releases {
		m.release(key(r.Token), r.Prefix)
	}
	for _, f := range in.Failures {
		m.Fails = append(m.Fails, f)
		if f.Permanent {
			m.Failed = f.Message
		}
		m.release(key(f.Token), f.At)
	}
	for _, l := range in.Leaves {
		m.Leaves = append(m.Leaves, l)
		m.dropWorker(s, l.Worker)
	}
	for _, r := range in.Requests {
		m.waiting = append(m.waiting, waiting{by: holder{s, s.agent, r.Worker}, request: r.Id})
	}
	for _, k := range in.Calls {
		m.call(s, k)
	}
	for _, h := range in.YieldsPaused {
		m.yieldsPaused(s, h)
	}
	s.Send(out)
	m.answerAsked()
	m.Serve()
}

// reassert answers an agent that says which leases it holds. It gets each back, with its token, if it
// still has it or if the range is still free.
func (m *Master) reassert(s *Session, held []*pb.Held, reply *pb.HelloReply) {
	for _, h := range held {
		was := key(h.Token)
		r := &pb.HeldReply{Was: h.Token}
		reply.Held = append(reply.Held, r)
		if l := m.leases[was]; l != nil && l.by.agent == s.agent {
			if h.LeaseEnd < l.end {
				m.giveBack(span{l.segment, h.LeaseEnd, l.end})
				l.end = h.LeaseEnd
			}
			l.by = holder{s, s.agent, h.Worker}
			r.Token, r.Prefix, r.LeaseEnd = h.Token, l.prefix, l.end
			m.finish(was)
			continue
		}
		prefix := min(m.settledTo(h.Segment, h.LeaseStart), h.LeaseEnd)
		want := span{h.Segment, prefix, h.LeaseEnd}
		if prefix == h.LeaseEnd { // all of it is settled, and the answer was lost
			r.Token, r.Prefix, r.LeaseEnd = h.Token, prefix, prefix
			continue
		}
		if was.term == m.Term || !m.take(want) {
			r.Refused, r.Reason = true, "its rows are with others"
			continue
		}
		m.put(was, want, holder{s, s.agent, h.Worker})
		r.Token, r.Prefix, r.LeaseEnd = h.Token, prefix, h.LeaseEnd
		m.finish(was)
	}
	// Drop leases of this agent process that it did not name: it knows all that it holds. Keep those of an
	// earlier process: trainers that come back later may still hold them.
	m.drop(func(l *lease) bool { return l.by.session != s && l.by.agent == s.agent && l.by.session.life == s.life })
}

// take removes s from pending. False: not all of it is pending.
func (m *Master) take(s span) bool {
	if s.start >= s.end {
		return true
	}
	at := s.start
	for _, p := range m.pending {
		if p.segment == s.segment && p.start <= at && p.end > at {
			at = p.end
		}
	}
	if at < s.end {
		return false
	}
	old := m.pending
	m.pending = nil
	for _, p := range old {
		if p.segment != s.segment || p.end <= s.start || p.start >= s.end {
			m.pending = append(m.pending, p)
			continue
		}
		m.giveBack(span{p.segment, p.start, s.start})
		m.giveBack(span{p.segment, s.end, p.end})
	}
	slices.SortFunc(m.pending, cmpSpan)
	return true
}

func (m *Master) add(s span, by holder) *pb.Token {
	m.sequence++
	t := token{m.Epoch, m.Term, m.sequence}
	m.put(t, s, by)
	return &pb.Token{Epoch: t.epoch, Term: t.term, Sequence: t.sequence}
}

func (m *Master) put(t token, s span, by holder) {
	m.leases[t] = &lease{span: s, prefix: s.start, by: by}
	m.order = append(m.order, t)
}

func key(t *pb.Token) token { return token{t.GetEpoch(), t.GetTerm(), t.GetSequence()} }

func (m *Master) ack(by uint64, a *pb.Ack, out *pb.MasterMessage) {
	r := &pb.AckResult{Token: a.Token, Prefix: a.Prefix}
	out.Acks = append(out.Acks, r)
	l := m.leases[key(a.Token)]
	switch {
	case l == nil:
		if t := key(a.Token); t.term == m.Term && t.sequence <= m.sequence && t.epoch == m.Epoch {
			// The lease was finished before. A repeated ack gets the same answer.
			for _, old := range m.Acks {
				if key(old.Token) == t && old.Prefix >= a.Prefix {
					return
				}
			}
		}
		r.Code, r.Reason = pb.AckResult_STALE, "unknown token"
		return
	case a.Prefix > l.end || a.Prefix < l.start:
		r.Code, r.Reason = pb.AckResult_INVALID, fmt.Sprintf("prefix %d outside [%d, %d)", a.Prefix, l.start, l.end)
		return
	}
	if a.Prefix > l.prefix && a.Step > 0 && a.Step <= m.reported[by] {
		r.Code, r.Reason = pb.AckResult_INVALID, fmt.Sprintf("step %d of worker %d was reported and is closed", a.Step, a.Worker)
		return
	}
	m.Acks = append(m.Acks, a)
	if a.Prefix > l.prefix {
		told := a.Tally
		if a.From != l.prefix {
			told = nil
		}
		m.acked = append(m.acked, Settled{Segment: l.segment, From: l.prefix, To: a.Prefix, Trainer: by, Step: a.Step, Tally: told})
		m.settled[l.segment] = append(m.settled[l.segment], span{l.segment, l.prefix, a.Prefix})
		l.prefix = a.Prefix
	}
	m.finish(key(a.Token))
}

// finish forgets a lease if all of it is settled.
func (m *Master) finish(t token) {
	if l := m.leases[t]; l != nil && l.prefix >= l.end {
		delete(m.leases, t)
		m.order = slices.DeleteFunc(m.order, func(o token) bool { return o == t })
	}
}

// settledTo is the end of the settled range that begins at `from`.
func (m *Master) settledTo(segment, from int64) int64 {
	for again := true; again; {
		again = false
		for _, s := range m.settled[segment] {
			if s.start <= from && s.end > from {
				from, again = s.end, true
			}
		}
	}
	return from
}

func (m *Master) release(t token, prefix int64) {
	if l := m.leases[t]; l != nil && prefix < l.end {
		m.giveBack(l.span.from(max(prefix, l.prefix)))
		l.end = max(prefix, l.prefix)
		m.finish(t)
	}
}

func (m *Master) dropWorker(s *Session, worker uint32) {
	delete(s.workers, worker)
	m.drop(func(l *lease) bool { return l.by.agent == s.agent && l.by.worker == worker })
	m.waiting = slices.DeleteFunc(m.waiting, func(w waiting) bool { return w.by.session == s && w.by.worker == worker })
	m.cuts.asked = slices.DeleteFunc(m.cuts.asked, func(q question) bool { return q.session == s && q.call.Worker == worker })
}

func (m *Master) drop(which func(*lease) bool) {
	for _, t := range slices.Clone(m.order) {
		if l := m.leases[t]; which(l) {
			m.giveBack(l.span.from(l.prefix))
			l.end = l.prefix
			m.finish(t)
		}
	}
}

// Expire takes back all leases of agents that have no stream.
func (m *Master) Expire() {
	m.drop(func(l *lease) bool { return l.by.session.gone })
	m.Serve()
}

// Serve answers waiting requests as far as possible.
func (m *Master) Serve() {
	kept := m.waiting[:0]
	for _, w := range m.waiting {
		if len(m.pending) > 0 && m.Failed == "" && !m.Restore {
			p := &m.pending[0]
			g := span{p.segment, p.start, min(p.end, p.start+m.Units)}
			if p.start = g.end; p.start >= p.end {
				m.pending = m.pending[1:]
			}
			t := m.add(g, w.by)
			seg := m.segments[g.segment]
			w.by.session.Send(&pb.MasterMessage{Term: m.Term, Grants: []*pb.Grant{{
				Request: w.request, Token: t, Worker: w.by.worker, Dataset: m.Dataset, Partition: 1, Identity: m.Identity,
				Segment: g.segment, LeaseStart: g.start, LeaseEnd: g.end,
				Pieces: []*pb.Piece{{OrderStart: g.start, Segment: g.segment, Start: g.start, End: g.end, Locator: seg.Locator, Name: seg.Name}},
			}}})
			continue
		}
		state := pb.Standing_DRAINED
		reason := m.Failed
		switch {
		case m.Failed != "":
			state = pb.Standing_FAILED
		case m.Restore:
			state, reason = pb.Standing_RESTORE, "the job has a past"
		case m.Done():
			state = pb.Standing_END
		}
		if !w.told || w.state != state {
			w.told, w.state = true, state
			w.by.session.Send(&pb.MasterMessage{Term: m.Term, Standings: []*pb.Standing{{
				Request: w.request, Worker: w.by.worker, Dataset: m.Dataset, State: state, Reason: reason}}})
		}
		if state != pb.Standing_END {
			kept = append(kept, w)
		}
	}
	m.waiting = kept
}

// Done reports whether every unit is settled.
func (m *Master) Done() bool { return m.Settled() == m.total }

// Settled counts settled units.
func (m *Master) Settled() (n int64) {
	for _, list := range m.settled {
		for _, s := range list {
			n += s.end - s.start
		}
	}
	return n
}

// Overlap describes a unit that was settled twice. "": there is none.
func (m *Master) Overlap() string {
	for _, list := range m.settled {
		list = slices.Clone(list)
		slices.SortFunc(list, cmpSpan)
		for i := 1; i < len(list); i++ {
			if list[i].start < list[i-1].end {
				return fmt.Sprintf("segment %d: %v and %v", list[i].segment, list[i-1], list[i])
			}
		}
	}
	return ""
}

// StealFrom asks the holder of the n-th living lease to give up its tail from `at` on.
func (m *Master) StealFrom(n int, at int64) bool {
	if n >= len(m.order) {
		return false
	}
	l := m.leases[m.order[n]]
	if l.by.session.gone {
		return false
	}
	t := m.order[n]
	l.by.session.Send(&pb.MasterMessage{Term: m.Term, StealAsks: []*pb.StealAsk{{
		Token: &pb.Token{Epoch: t.epoch, Term: t.term, Sequence: t.sequence}, At: at}}})
	return true
}

// Leases counts living leases.
func (m *Master) Leases() int { return len(m.order) }

// LeaseSpan is the n-th living lease: its durable prefix and end.
func (m *Master) LeaseSpan(n int) (prefix, end int64) {
	l := m.leases[m.order[n]]
	return l.prefix, l.end
}

// Workers lists the joins of all living sessions.
func (m *Master) Workers() (all []*pb.Join) {
	for _, s := range m.sessions {
		for _, j := range s.workers {
			all = append(all, j)
		}
	}
	slices.SortFunc(all, func(a, b *pb.Join) int { return int(a.Worker) - int(b.Worker) })
	return all
}

// Tell sends a message to every living session.
func (m *Master) Tell(out *pb.MasterMessage) {
	for _, s := range m.sessions {
		s.Send(out)
	}
}
