package serve

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/wire"
	"google.golang.org/grpc"
)

// Server is one job's shard service. Make it with New, Register it, then Run.
type Server struct {
	cfg     Config
	core    *shardsvc.Core // only the loop uses it once Run has begun
	decoder wire.Decoder   // used by the readers
	started time.Time
	http    atomic.Pointer[string]

	inbox    chan item
	stopping chan struct{} // closed when nothing is taken any more
	stopped  chan struct{} // closed when Run has ended
	stopOnce sync.Once
	ran      atomic.Bool
	failure  error           // why Run ended; set before stopping is closed
	alive    context.Context // ends when stopping is closed
	dead     context.CancelFunc

	sessions streams
	readers  sync.WaitGroup
	changed  signal
	moved    signal // commit marks may have moved
	letters  signal // dead letters to be written
	metrics  *metrics
	meter    meter
	bodies   bodies
	bindings bindings

	releasing chan struct{} // full while a source is released

	retentions retentions
	silences   silences
	deletions  deletions
}

// New makes a server and loads its state from the store. An error names the value that
// could not be read.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg:      cfg,
		core:     shardsvc.New(cfg.core()),
		decoder:  wire.Decoder{Job: cfg.Job, Model: cfg.Model, Now: func() int64 { return time.Now().UnixMilli() }},
		started:  time.Now(),
		inbox:    make(chan item, inboxItems),
		stopping: make(chan struct{}),
		stopped:  make(chan struct{}),

		releasing: make(chan struct{}, 1),
	}
	s.alive, s.dead = context.WithCancel(context.Background())
	s.changed.init()
	s.moved.init()
	s.letters.init()
	if err := cfg.Store.Load(s.core.Load); err != nil {
		return nil, fmt.Errorf("load state: %w", err)
	}
	if err := s.core.Loaded(); err != nil { // before anything is listened to or said
		return nil, err
	}
	if s.metrics, err = newMetrics(s); err != nil {
		return nil, err
	}
	return s, nil
}

// Register adds the Shards, Datasets and Checkpoints services.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	headracev1.RegisterShardsServer(r, &shards{s: s})
	headracev1.RegisterDatasetsServer(r, &datasets{s: s})
	headracev1.RegisterCheckpointsServer(r, &checkpoints{s: s})
}

// SetHTTP sets the address of /metrics, /healthz and pprof, which Job reports.
func (s *Server) SetHTTP(addr string) { s.http.Store(&addr) }

// Ready says whether the master has recovered. A new term first waits for the agents that
// it knows, for LostAfter at most (one TTL, unless it is set longer).
func (s *Server) Ready(ctx context.Context) (bool, error) {
	var ready bool
	if err := s.view(ctx, func(l *loop) { ready = !l.core.Job().Recovering }); err != nil {
		return false, err
	}
	return ready, nil
}

// Run serves until ctx ends (nil) or the store fails (its error; the process
// must end). Streams and calls that are open then end with UNAVAILABLE. It can be
// called once.
func (s *Server) Run(ctx context.Context) error {
	if !s.ran.CompareAndSwap(false, true) {
		return fmt.Errorf("serve: Run was called before")
	}
	c := newCommitter(s)
	l := newLoop(s, c)
	var wg sync.WaitGroup
	wg.Go(c.run)
	wg.Go(func() { s.meter.run(s.alive, s) })
	wg.Go(func() { s.releaseLeftovers(s.alive) })
	err := l.run(ctx)
	s.stop(err)
	close(c.work) // after the loop: it is the only one that sends
	wg.Wait()
	s.readers.Wait()
	s.metrics.unregister()
	close(s.stopped)
	return err
}

// stop ends everything that waits for the loop.
func (s *Server) stop(err error) {
	s.stopOnce.Do(func() {
		s.failure = err
		close(s.stopping)
		s.dead()
	})
}

// stopErr is the error of calls that wait when the server stops.
func (s *Server) stopErr() error {
	if s.failure != nil {
		return fmt.Errorf("%w: %w", ErrStopped, s.failure)
	}
	return ErrStopped
}

// item is one thing in the inbox: a message, a lost stream, or a call.
type item struct {
	in   *inbound
	lost *stream
	call *call
}

// call runs f on the loop. done gets f's error: at once with view, else when the
// batch that f was part of is durable.
type call struct {
	f    func(*loop) error
	view bool
	acts bool // by the answer, somebody acts outside of the store
	done chan error
}

// push hands an item to the loop; false: the server is stopping.
func (s *Server) push(it item) bool {
	select {
	case s.inbox <- it:
		return true
	case <-s.stopping:
		return false
	}
}

// view reads the core. What it sees may not be durable yet. After an error f may still
// run, so the caller must not touch what f writes.
func (s *Server) view(ctx context.Context, f func(*loop)) error {
	return s.do(ctx, &call{view: true, f: func(l *loop) error { f(l); return nil }})
}

// change steps the core and returns when that is durable. f's own error comes
// back too; what it stepped before stays.
func (s *Server) change(ctx context.Context, f func(*loop) error) error {
	return s.do(ctx, &call{f: f})
}

// ownView is a view of durable state by which the caller acts outside of the store: it tells a
// broker, or deletes data. It returns when a commit has shown that the store is ours. A master
// whose store was taken over gets an error instead.
func (s *Server) ownView(ctx context.Context, f func(*loop) error) error {
	return s.do(ctx, &call{f: f, acts: true})
}

func (s *Server) do(ctx context.Context, c *call) error {
	c.done = make(chan error, 1)
	select {
	case s.inbox <- item{call: c}:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stopping:
		return s.stopErr()
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stopping:
		select { // both may be true
		case err := <-c.done:
			return err
		default:
			return s.stopErr()
		}
	}
}

// signal wakes all waiting goroutines at each fire.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func (g *signal) init() { g.ch = make(chan struct{}) }

func (g *signal) wait() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ch
}

func (g *signal) fire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.ch)
	g.ch = make(chan struct{})
}
