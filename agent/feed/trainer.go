package feed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/frame"
)

// trainer is one process that said HELLO.
type trainer struct {
	srv    *Server
	number uint32
	hello  frame.Hello
	cred   *unix.Ucred
	proc   *process // nil if the agent cannot see the process
	group  int      // its process group; 0: unknown
	alone  alone
	conn   *net.UnixConn
	out    *outbox
	joined chan hold.Joined // answered once
	left   chan struct{}    // closed when the Desk knows how it left
	ctx    context.Context  // of the control connection
	wg     sync.WaitGroup   // OPENs under way, data connections

	ttl      atomic.Int64 // of the session, ns
	isolates atomic.Bool  // it reads a dataset with on_crash: isolate

	mu      sync.Mutex
	streams map[uint32]*stream
	model   string
	killed  string // why we ended it
	status  pb.WorkerStatus
}

// outbox sends control messages in order without making their senders wait. It
// is bounded: a process that reads nothing is cut off.
type outbox struct {
	mu      sync.Mutex
	buf     []byte
	early   []byte // messages that wait for WELCOME, which must be the first answer
	greeted bool
	answers int // bytes of ANSWERs in buf and early
	signal  chan struct{}
	full    bool
}

// outboxLimit does not count ANSWERs. They may be larger, and the number of calls bounds them.
const outboxLimit = 8 << 20

func newOutbox() *outbox { return &outbox{signal: make(chan struct{}, 1)} }

func (o *outbox) send(t frame.Type, stream uint32, v any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	to := &o.buf
	if !o.greeted && t != frame.TypeWelcome && t != frame.TypeError {
		to = &o.early
	}
	b, err := frame.AppendControl(*to, t, stream, 0, v)
	if t == frame.TypeAnswer {
		o.answers += len(b) - len(*to)
	}
	if err != nil || len(b) > outboxLimit+o.answers {
		o.full = true
	} else {
		*to = b
	}
	if t == frame.TypeWelcome {
		o.greeted = true
		o.buf, o.early = append(o.buf, o.early...), nil
	}
	select {
	case o.signal <- struct{}{}:
	default:
	}
}

// drain writes messages until ctx ends, and then those that are still queued.
func (o *outbox) drain(ctx context.Context, c net.Conn) {
	var spare []byte
	for {
		done := false
		select {
		case <-o.signal:
		case <-ctx.Done():
			done = true
		}
		o.mu.Lock()
		b, full := o.buf, o.full
		o.buf, o.answers = spare[:0], 0
		o.mu.Unlock()
		if full {
			_ = c.Close()
			return
		}
		if len(b) > 0 {
			_ = c.SetWriteDeadline(time.Now().Add(helloWait))
			if _, err := c.Write(b); err != nil {
				// What an ended process has said before is still to be read.
				if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
					_ = c.Close()
				}
				return
			}
		}
		spare = b
		if done {
			return
		}
	}
}

func (t *trainer) stream(number uint32) *stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.streams[number]
}

func (t *trainer) eachStream(f func(*stream)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.streams {
		f(s)
	}
}

func (t *trainer) welcome(j hold.Joined) {
	t.ttl.Store(int64(j.TTLMillis) * int64(time.Millisecond))
	t.mu.Lock()
	t.model = j.Model
	t.mu.Unlock()
	select {
	case t.joined <- j:
	default:
	}
}

func (t *trainer) acked(a hold.Acked) {
	if s := t.stream(a.Stream.Number); s == nil || s.track {
		t.out.send(frame.TypeAcked, a.Stream.Number, frame.Acked{Through: a.Through})
	}
}

func (t *trainer) fenced(reason string) {
	t.srv.cfg.Logger.Warn("trainer fenced", "rank", t.hello.Rank, "pid", t.hello.PID, "reason", reason)
	t.out.send(frame.TypeFenced, 0, frame.Fenced{Reason: reason})
}

func (t *trainer) live() { t.eachStream(func(s *stream) { s.live() }) }

func (t *trainer) masterLost(reason string) {
	t.eachStream(func(s *stream) { s.say(frame.StateMasterLost, reason) })
}

// kill ends the process: QUIT, a short grace, SIGKILL. Its connection's end
// tells the rest.
func (t *trainer) kill(reason string) {
	t.mu.Lock()
	t.killed = reason
	t.mu.Unlock()
	t.srv.cfg.Logger.Warn("ending a trainer", "rank", t.hello.Rank, "pid", t.hello.PID, "reason", reason)
	t.out.send(frame.TypeQuit, 0, frame.Quit{Reason: reason})
	grace := time.NewTimer(min(quitGrace, time.Duration(t.ttl.Load())/20)) // well inside the session's margin
	defer grace.Stop()
	if t.proc == nil {
		<-grace.C
		_ = t.conn.Close()
		return
	}
	select {
	case <-t.proc.exited:
	case <-grace.C:
	case <-t.srv.stopped.Done():
	}
	if err := t.proc.kill(); err != nil {
		t.srv.cfg.Logger.Error("cannot end a trainer", "pid", t.cred.Pid, "error", err)
	}
}

// depart tells the Desk how the process left. bye: it said BYE.
func (t *trainer) depart(bye bool) {
	number := t.number
	gone := func(r pb.Leave_Reason, ended bool, detail string) {
		crash := false
		if ended {
			t.srv.stepFiles.rest(t)
			if crash = t.isolates.Load() && t.srv.fates.crashed(t.group); crash {
				t.alone.crashed(&t.srv.patience)
				t.afterThoseBefore()
			}
		}
		t.srv.cfg.Desk.Do(&hold.Gone{Worker: number, Reason: r, Ended: ended, Detail: detail, Crash: crash, Unseen: t.proc == nil})
	}
	if bye {
		gone(pb.Leave_CLOSED, false, "said goodbye")
		return
	}
	if t.srv.stopped.Err() != nil {
		return // the agent leaves, not the trainer: it looks for the next agent
	}
	if t.proc == nil {
		gone(pb.Leave_LOST, false, "connection closed; its process cannot be seen from the agent")
		return
	}
	if t.ended(exitWait) {
		gone(t.exitReason())
		return
	}
	t.mu.Lock()
	model := t.model
	t.mu.Unlock()
	if model != "shared" {
		gone(pb.Leave_LOST, false, fmt.Sprintf("connection closed while process %d lives", t.cred.Pid))
		if t.ended(0) {
			gone(t.exitReason())
		}
		return
	}
	// Its rows may still reach the shared model, so it is ended first.
	t.mu.Lock()
	t.killed = "its connection broke while it lived"
	t.mu.Unlock()
	if err := t.proc.kill(); err != nil {
		t.srv.cfg.Logger.Error("cannot end a trainer", "pid", t.cred.Pid, "error", err)
	}
	if t.ended(0) {
		gone(t.exitReason())
	}
}

// afterThoseBefore waits until the Desk knows of all trainers that ended before t. The reason: the
// master takes the first end that it hears of for the first failure. The wait needs no time limit,
// because the end of each of these trainers is reported soon: everything that its connection still
// waits for has a deadline, and none of them waits for a trainer that ended later.
func (t *trainer) afterThoseBefore() {
	s := t.srv
	select {
	case <-t.proc.exited: // when it ended is known
	case <-s.stopped.Done():
		return
	}
	var before []*trainer
	s.mu.Lock()
	for _, o := range s.trainers {
		if o != t && o.proc != nil && o.proc.endedBefore(t.proc) {
			before = append(before, o)
		}
	}
	s.mu.Unlock()
	for _, o := range before {
		select {
		case <-o.left:
		case <-s.stopped.Done():
			return
		}
	}
}

func (t *trainer) exitReason() (pb.Leave_Reason, bool, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.killed != "" {
		return pb.Leave_KILLED, true, "ended by the agent: " + t.killed
	}
	return pb.Leave_EXITED, true, fmt.Sprintf("process %d ended", t.cred.Pid)
}

// ended waits for the process's end; limit 0: as long as the server lives.
func (t *trainer) ended(limit time.Duration) bool {
	var after <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-t.proc.exited:
		return true
	case <-after:
	case <-t.srv.stopped.Done():
	}
	return t.proc.gone()
}
