package agent

import (
	"context"
	"hash/fnv"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/agent/feed"
	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
)

// desk is where trainers, the master's stream and the clock meet the core. Its lock is
// taken before all others and is held until the core's decisions are handed out. So
// decisions are carried out in the order in which the core made them.
type desk struct {
	srv  *feed.Server
	wake chan struct{} // the clock must look at `due` again

	mu      sync.Mutex
	core    *hold.Core
	fx      hold.Effects
	due     hold.Time
	workers uint32
	link    *outgoing // of the open stream to the master, nil without one
	lost    string    // why there is none
	greeted chan struct{}
	known   chan struct{} // closed when LeavesKnown; nil if nobody waits
}

func newDesk(cfg hold.Config) *desk {
	return &desk{
		core: hold.New(cfg), due: hold.Never, wake: make(chan struct{}, 1),
		greeted: make(chan struct{}), lost: "it was not reached yet",
	}
}

// now is the node's clock: monotonic and never 0. It goes on while the machine is
// suspended, because the master's clock goes on too and a session must not outlive its
// TTL. Trainers say on it when they were made.
func (d *desk) now() hold.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("agent: this kernel has no CLOCK_BOOTTIME: " + err.Error()) // Linux 2.6.39
	}
	return ts.Nano()
}

// clockName names that clock, by the boot of the node and the time namespace that we are
// in. 0: unknown.
func clockName() uint64 {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	space, _ := os.Readlink("/proc/self/ns/time") // Linux 5.6
	h := fnv.New64a()
	_, _ = h.Write(append(boot, space...))
	return h.Sum64()
}

// Do implements feed.Desk.
func (d *desk) Do(ev hold.Event) feed.Answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fx.Reset()
	due := d.core.Step(d.now(), ev, &d.fx)
	if due < d.due {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
	d.due = due
	if d.link != nil {
		for _, m := range d.fx.Send {
			d.link.add(m)
		}
		if d.fx.Reconnect != "" {
			d.link.close(d.fx.Reconnect)
		}
	}
	if d.fx.Greeted {
		d.lost = ""
		select {
		case <-d.greeted:
		default:
			close(d.greeted)
		}
	}
	d.srv.Apply(&d.fx)
	if d.known != nil && d.core.LeavesKnown() {
		close(d.known)
		d.known = nil
	}
	return feed.Answer{Verdict: d.fx.Verdict, Pace: d.fx.Pace, Invalid: d.fx.Invalid, Session: d.fx.Session, Mute: d.fx.Mute}
}

// leavesKnown waits until the master is known to have each Leave, or until ctx ends.
func (d *desk) leavesKnown(ctx context.Context) {
	d.mu.Lock()
	if d.core.LeavesKnown() {
		d.mu.Unlock()
		return
	}
	known := make(chan struct{})
	d.known = known
	d.mu.Unlock()
	select {
	case <-known:
	case <-ctx.Done():
	}
}

// NextWorker implements feed.Desk.
func (d *desk) NextWorker() uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.workers++
	return d.workers
}

// Lost implements feed.Desk.
func (d *desk) Lost() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

// connect makes out the queue to the master. Hello leaves on it first.
func (d *desk) connect(out *outgoing) {
	d.mu.Lock()
	d.link = out
	d.mu.Unlock()
	d.Do(&hold.Connected{})
}

func (d *desk) disconnect(why string) {
	d.mu.Lock()
	d.link, d.lost = nil, why
	d.mu.Unlock()
	d.Do(&hold.Disconnected{})
	d.srv.MasterLost(why)
}

// clock gives the core its Ticks until done is closed.
func (d *desk) clock(done <-chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		d.mu.Lock()
		due := d.due
		d.mu.Unlock()
		wait := time.Hour
		if due != hold.Never {
			wait = max(0, time.Duration(due-d.now()))
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
			d.Do(&hold.Tick{})
		case <-d.wake:
		case <-done:
			return
		}
	}
}

// outgoing is the queue of one stream to the master. Messages keep their order. They are
// never merged, because the fields of one message take effect in an order of their own.
type outgoing struct {
	mu     sync.Mutex
	queue  []*pb.AgentMessage
	signal chan struct{}
	closed chan struct{}
	why    string
}

// outgoingLimit bounds the queue. A master that takes nothing for so long counts as gone.
const outgoingLimit = 16 << 10

func newOutgoing() *outgoing {
	return &outgoing{signal: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (o *outgoing) add(m *pb.AgentMessage) {
	o.mu.Lock()
	o.queue = append(o.queue, m)
	full := len(o.queue) > outgoingLimit
	o.mu.Unlock()
	if full {
		o.close("the master takes no messages")
		return
	}
	select {
	case o.signal <- struct{}{}:
	default:
	}
}

func (o *outgoing) take(into []*pb.AgentMessage) []*pb.AgentMessage {
	o.mu.Lock()
	defer o.mu.Unlock()
	into, o.queue = o.queue, into[:0]
	return into
}

func (o *outgoing) close(why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.why == "" {
		o.why = why
		close(o.closed)
	}
}
