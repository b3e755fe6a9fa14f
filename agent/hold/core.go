package hold

import (
	"math"
	"slices"
	"time"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// Time is the monotonic clock of the agent's node in nanoseconds.
type Time = int64

// Never is a wake that does not come.
const Never Time = math.MaxInt64

// Config is what does not change in the life of an agent process.
type Config struct {
	Hello    *pb.Hello     // sent at the start of every session
	Prefetch time.Duration // leases to hold ahead, in time of the worker's own rate
	AckDelay time.Duration // how long an ack waits for others
}

// Core is the state. Use New.
type Core struct {
	cfg Config
	now Time

	// session
	up         bool // a stream to the master is open
	greeted    bool // and its Hello was answered
	job, model string
	ttl        time.Duration
	trustUntil Time // 0: never had a session
	expired    bool // trust ended and its consequences were drawn
	lastSend   Time
	ackDue     Time // when acks that wait must leave; Never: none waits

	lastRequest uint64
	lastLease   Lease

	workers  []*worker // in order of number
	byNumber map[uint32]*worker
	byToken  map[Token]*lease
	byLease  map[Lease]*lease
	requests map[uint64]*stream
	asserted []*lease  // order of Hello.held, until answered
	whole    bool      // all of Hello was answered: steps and calls may follow the acks
	dirty    []*lease  // with acks to send
	reports  []*worker // with a step to report, after its acks
	callers  []*worker // with calls to send, after its acks and steps
	paused   []*worker // with pausedDue
	heads    []*lease  // whose head is news to the master
	rounding []*stream // with rounds, in order of opening
	unsure   []unsure  // said, not yet known to be processed

	out *pb.AgentMessage // of this Step, nil until needed
	fx  *Effects
}

type worker struct {
	join     *pb.Join
	said     bool // the master of this session was told of it
	ended    bool // it came as step files: its model is shared, and outlives it
	answered bool // its HELLO was answered
	state    workerState
	reason   string // of fenced, ending
	lastStep int64
	reported int64 // last step said to the master
	streams  []*stream
	resumed  []ResumeReply
	leave    *pb.Leave
	unseen   bool      // see Gone
	hand     *pb.Crash // the rows that it had in hand when they were given back before its end was known
	status   *pb.WorkerStatus
	calls    []call // unanswered, in order
	lastCall uint64

	pause      uint64 // the cut that its yields are paused for
	pauseStale bool   // the pause is from an earlier session
	pausedDue  bool   // its trainer has said that it yields nothing, and the master must still hear that

	doubts bool // shared: the last PONG told its trainer that the session is over
}

type workerState uint8

const (
	joining workerState = iota
	joined
	fenced // trainer told; its rows may be with others
	ending // being killed
	gone
)

// deliverable says whether batches may leave for the worker.
func (w *worker) deliverable() bool { return w.state == joined }

type stream struct {
	id      Stream
	w       *worker
	dataset uint32
	virtual uint32 // bit_exact: the virtual rank whose leases it requests
	tracked bool
	strict  bool
	closed  bool
	over    bool // END, FAILED or DELETED was said

	// Batches are numbered from 1: durable <= stepped <= delivered.
	delivered, stepped, durable uint32
	lastStep                    int64
	batches                     fifo[batch] // durable+1 ... delivered
	takes                       fifo[take]  // of these batches
	takesStepped                int         // those of batches up to stepped

	leases    []*lease // in order of grant
	gaps      []gap
	hungry    bool
	requests  []uint64 // not answered
	lastGrant int64
	lastOf    input          // the input that lastGrant belongs to
	ratedFrom [inputs]uint64 // the first request that carried a rate of this input; 0: none yet
	sized     [inputs]bool   // a grant of this input has answered a request with a rate
	rate      meter
	standing  pb.Standing_State
	gaveUp    bool      // virtual rank: rows could not be read, and no grant has come since
	told      uint64    // the newest request that was answered with a standing
	rounds    *rounding // nil: it has none
}

// input of a dataset: its source, or its backfill. Each counts in units of its own.
type input uint8

const (
	ofSource input = iota
	ofBackfill
	inputs
)

type batch struct {
	takes int32
	units [inputs]int64
}

type take struct {
	l        *lease
	from, to int64
	told     bool // its records were counted
	Tally
}

type lease struct {
	id    Lease
	token Token
	s     *stream

	partition, pass uint32
	segment         int64
	in              input

	// start <= durable <= stepped <= frontier <= end, all in order space.
	end      int64
	frontier int64 // delivered up to here
	stepped  int64 // in the model up to here, as we were told
	durable  int64 // and the master has it on disk
	tail     int64 // no record begins in [tail, end); Never until read to the end

	head  int64 // where its segment ends by now; Never: it was not seen, or it is final
	met   bool  // head is from the reader; else it is from the master, and may be wrong
	waits bool  // the reader waits at head
	ahead bool  // the master knew of no record in it when it was granted, and the reader has not said more
	news  bool  // in Core.heads

	acks   []ack // unanswered, in order; the first `sent` were sent in this session
	sent   int
	said   int // and so many may have been sent in any session, by us or by an agent before us
	dirty  bool
	dead   bool // revoked or refused: nothing of it is sent any more
	resume bool // brought by a trainer, not yet asserted
}

// unsure is a part of a message that was sent at `at`. A new session repeats it, unless the
// master has echoed that time.
type unsure struct {
	at    Time
	leave *pb.Leave
	fail  *pb.ReadFailure
	lease *lease // of fail
}

// New makes a core.
func New(cfg Config) *Core {
	return &Core{
		cfg: cfg, ackDue: Never,
		byNumber: map[uint32]*worker{}, byToken: map[Token]*lease{}, byLease: map[Lease]*lease{}, requests: map[uint64]*stream{},
	}
}

// Step applies ev at now, fills fx, and returns when it wants a Tick.
func (c *Core) Step(now Time, ev Event, fx *Effects) (wake Time) {
	c.now, c.fx = max(now, c.now), fx
	switch ev := ev.(type) {
	case *Connected:
		c.connected()
	case *Disconnected:
		c.disconnected()
	case *Received:
		c.received(ev.Message)
	case *Tick:
	case *Join:
		c.onJoin(ev)
	case *Open:
		c.onOpen(ev)
	case *Hungry:
		if s := c.stream(ev.Stream); s != nil {
			s.hungry = true
			c.want(s)
			if c.talking() && s.hasAll() { // it was told before the stream was hungry
				c.fx.States = append(c.fx.States, StateOf{Stream: s.id, State: s.standing})
			}
		}
	case *Deliver:
		c.deliver(ev)
	case *Consumed:
		if s := c.stream(ev.Stream); s != nil {
			s.rate.consumeBatches(c.now, ev.Batches)
			c.want(s)
		}
	case *Exhausted:
		if l := c.byLease[ev.Lease]; l != nil {
			c.exhausted(l, ev.Tail)
		}
	case *HeadSeen:
		if l := c.byLease[ev.Lease]; l != nil {
			c.headSeen(l, ev)
		}
	case *Stepped:
		c.step(ev)
	case *Failed:
		if l := c.byLease[ev.Lease]; l != nil {
			c.failed(l, ev)
		}
	case *Close:
		if s := c.stream(ev.Stream); s != nil {
			c.closeStream(s, "closed")
		}
	case *Gone:
		c.onGone(ev)
	case *Call:
		c.onCall(ev.Call)
	case *YieldsPaused:
		c.yieldsPaused(ev)
	case *Arrived:
		c.arrived(ev)
	case *Ahead:
		c.ahead(ev)
	case *Ping:
		c.ping(ev)
	case *Status:
		if w := c.byNumber[ev.Status.Worker]; w != nil {
			w.status = ev.Status
		}
	}
	c.distrust()
	c.flush()
	c.fx = nil
	return c.wake()
}

// message is what leaves after this Step.
func (c *Core) message() *pb.AgentMessage {
	if c.out == nil {
		c.out = &pb.AgentMessage{}
	}
	return c.out
}

// talking says whether what we send now reaches the master in order.
func (c *Core) talking() bool { return c.up && c.greeted }

// flush adds what waits and hands the message over.
func (c *Core) flush() {
	if len(c.dirty)+len(c.reports) == 0 {
		c.ackDue = Never // what waited was dropped with its lease
	}
	if c.talking() {
		if c.now >= c.lastSend+c.beat() {
			c.message()
		}
		if len(c.dirty)+len(c.reports) > 0 && c.whole && (c.out != nil || c.now >= c.ackDue || len(c.callers)+len(c.paused) > 0) {
			c.appendAcks(c.message())
		}
		if len(c.paused) > 0 && c.whole {
			c.sendPaused()
		}
		if len(c.rounding) > 0 && c.whole {
			c.sayRounds()
		}
		if c.out != nil {
			c.appendStatus(c.out)
			c.appendHeads(c.out)
		}
	}
	c.send()
	if c.talking() && c.whole {
		c.sendCalls()
	}
}

func (c *Core) send() {
	if c.out == nil {
		return
	}
	c.out.SentAt = c.now
	c.lastSend = c.now
	c.fx.Send = append(c.fx.Send, c.out)
	c.out = nil
}

// beat is how often the master hears from us at least.
func (c *Core) beat() Time { return Time(c.ttl / 5) }

func (c *Core) wake() Time {
	wake := Never
	if c.talking() {
		wake = c.lastSend + c.beat()
		if c.whole {
			wake = min(wake, c.ackDue)
		}
	}
	if c.trustUntil > 0 && !c.expired {
		wake = min(wake, c.trustUntil)
	}
	return wake
}

func (c *Core) stream(id Stream) *stream {
	w := c.byNumber[id.Worker]
	if w == nil {
		return nil
	}
	for _, s := range w.streams {
		if s.id == id {
			return s
		}
	}
	return nil
}

// LeavesKnown says whether the master is known to have each Leave that we could tell it.
func (c *Core) LeavesKnown() bool {
	return !c.talking() || !slices.ContainsFunc(c.unsure, func(u unsure) bool { return u.leave != nil })
}

// SessionLeft is how long the session can still be trusted.
func (c *Core) SessionLeft(now Time) time.Duration {
	return time.Duration(max(0, c.trustUntil-now))
}
