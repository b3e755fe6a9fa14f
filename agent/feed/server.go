package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/agent/hold"
	"github.com/headrace/headrace/agent/replica"
	"github.com/headrace/headrace/flashckpt/bucket"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"
)

// Desk is where events go (package agent). It never blocks for long and may
// call Server.Apply before it returns.
type Desk interface {
	Do(ev hold.Event) Answer
	// NextWorker numbers a trainer process; Join takes the number.
	NextWorker() uint32
	// Lost says why there is no session now, or "".
	Lost() string
}

// Answer is what the sender of an event needs at once.
type Answer struct {
	Verdict hold.Verdict
	Pace    float64
	Invalid string
	Session time.Duration
	Mute    bool
}

// Catalog finds datasets by name. Errors that a trainer tells apart by a code are
// *frame.Error.
type Catalog interface {
	Find(ctx context.Context, name string) (*Dataset, error)
}

// Dataset is one dataset opened for reading; Close ends this use of it.
type Dataset struct {
	ID     uint32
	Name   string
	Unit   string
	Spec   *dataset.Spec
	Source sources.Source
	// Backfill is the other input of a dataset that has two; nil: it has one.
	Backfill *Backfill
	Close    func()
}

// Backfill is a dataset's backfill opened for reading. Its Spec has one source.
type Backfill struct {
	Spec   *dataset.Spec
	Source sources.Source
}

// source is what a lease is read from.
func (d *Dataset) source(l *lease) sources.Source {
	if l.grant.Backfill && d.Backfill != nil {
		return d.Backfill.Source
	}
	return d.Source
}

// inOrder says whether the records of the backfill come first.
func (d *Dataset) inOrder() bool {
	return d.Backfill != nil && d.Spec.CatchUp.Order != dataset.CatchUpNewestFirst
}

// atOnce is how many leases a stream reads at a time, each in a partition of its own.
func (d *Dataset) atOnce() int {
	switch {
	case d.Spec.Live():
		return math.MaxInt
	case d.Spec.BitExact != nil: // records come in one order
		return 1
	}
	return max(1, d.Spec.Kind().SideBySide)
}

// Config is what a Server is told.
type Config struct {
	Socket      string
	Agent       string
	Version     string
	Prefetch    time.Duration
	Linger      time.Duration
	BufferBytes int64
	ShareFrom   int
	Desk        Desk
	Catalog     Catalog
	Checkpoints *bucket.Places // those in buckets
	Peers       *replica.Node  // those in other nodes' memory; nil: it knows no other nodes
	Metrics     *Metrics
	Logger      *slog.Logger
}

// Times of the protocol. joinWait is how long a trainer waits for a master. The Python
// client gives up after 30 s; it must hear the reason before that.
const (
	helloWait = 10 * time.Second
	joinWait  = 25 * time.Second
	exitWait  = 500 * time.Millisecond // between a broken connection and its process's end
	quitGrace = 200 * time.Millisecond // between QUIT and SIGKILL, at most
)

// Server is the trainers' socket, its connections and their streams.
type Server struct {
	cfg      Config
	buffered atomic.Int64 // bytes decoded and not delivered, all streams
	streams  atomic.Int64
	stopped  context.Context
	stop     context.CancelFunc
	wg       sync.WaitGroup

	stepFiles stepFiles
	fates     fates
	patience  patience

	mu       sync.Mutex
	trainers map[uint32]*trainer
	listener *net.UnixListener
}

// NewServer opens nothing.
func NewServer(cfg Config) *Server {
	s := &Server{cfg: cfg, trainers: map[uint32]*trainer{}}
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.stepFiles = stepFiles{srv: s, known: map[frame.Incarnation]uint32{}}
	return s
}

// Listen opens the socket. found: a dead agent has left it, so living trainers
// may be about to come back. Errors: ErrAgentThere.
func (s *Server) Listen(ctx context.Context) (found bool, err error) {
	l, found, err := listen(ctx, s.cfg.Socket)
	if err != nil {
		return false, err
	}
	s.listener = l
	s.stepFiles.open()
	s.wg.Go(s.accept)
	return found, nil
}

func (s *Server) accept() {
	for {
		c, err := s.listener.AcceptUnix()
		switch {
		case err == nil:
			s.wg.Go(func() { s.serve(c) })
		case errors.Is(err, net.ErrClosed):
			return
		default: // out of file descriptors, most likely: others may end
			s.cfg.Logger.Error("a trainer could not connect", "socket", s.cfg.Socket, "error", err)
			select {
			case <-s.stopped.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

// Close stops listening, ends every connection and waits for all of them.
// Trainers are not ended: they look for an agent on the same path again.
func (s *Server) Close() {
	s.stop()
	if s.listener != nil {
		_ = s.listener.Close() // removes the file
	}
	s.wg.Wait()
	s.stepFiles.close()
}

// Departed waits until the Desk knows of each trainer whose process has ended, or until ctx
// ends.
func (s *Server) Departed(ctx context.Context) {
	var ended []*trainer
	s.each(func(t *trainer) {
		if t.proc != nil && t.proc.gone() {
			ended = append(ended, t)
		}
	})
	for _, t := range ended {
		select {
		case <-t.left:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) trainer(number uint32) *trainer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trainers[number]
}

func (s *Server) each(f func(*trainer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.trainers {
		f(t)
	}
}

// Apply carries out what the core has decided. It is called under the Desk's
// lock and does not block.
func (s *Server) Apply(fx *hold.Effects) {
	for i := range fx.Joined {
		if t := s.trainer(fx.Joined[i].Worker); t != nil {
			t.welcome(fx.Joined[i])
		}
	}
	for _, g := range fx.Grants {
		if st := s.stream(g.Stream); st != nil {
			st.granted(g)
		}
	}
	for _, e := range fx.Ends {
		if st := s.stream(e.Stream); st != nil {
			st.shrunk(e)
		}
	}
	for _, a := range fx.Acked {
		if t := s.trainer(a.Stream.Worker); t != nil {
			t.acked(a)
		}
	}
	for _, r := range fx.Answers {
		if t := s.trainer(r.Worker); t != nil {
			t.answered(r)
		}
	}
	for _, sf := range fx.States {
		if st := s.stream(sf.Stream); st != nil {
			st.stateChanged(sf.State, sf.Reason)
		}
	}
	for _, r := range fx.Rounds {
		if st := s.stream(r.Stream); st != nil {
			st.decided(r)
		}
	}
	for _, f := range fx.Fenced {
		if t := s.trainer(f.Worker); t != nil {
			t.fenced(f.Reason)
		}
	}
	for _, h := range fx.Pauses {
		if t := s.trainer(h.Worker); t != nil {
			t.pauseYields(h)
		}
	}
	for _, k := range fx.Kill {
		if t := s.trainer(k.Worker); t != nil {
			s.wg.Go(func() { t.kill(k.Reason) })
		}
	}
	for _, number := range fx.Forgotten {
		s.stepFiles.forgotten(number)
	}
	if fx.Live {
		s.each(func(t *trainer) { t.live() })
	}
}

// MasterLost tells waiting streams why no batch comes.
func (s *Server) MasterLost(reason string) {
	s.each(func(t *trainer) { t.masterLost(reason) })
}

func (s *Server) stream(id hold.Stream) *stream {
	if t := s.trainer(id.Worker); t != nil {
		return t.stream(id.Number)
	}
	return nil
}

// serve reads the first message of a connection, which says what it is.
func (s *Server) serve(c *net.UnixConn) {
	defer c.Close()
	stop := context.AfterFunc(s.stopped, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := s.dispatch(c); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
		s.cfg.Logger.Debug("a connection of a trainer ended", "error", err)
	}
}

func (s *Server) dispatch(c *net.UnixConn) error {
	cred, err := peer(c)
	if err != nil {
		return fmt.Errorf("the credentials of the connection: %w", err)
	}
	if err := admitted(cred); err != nil {
		return s.refuse(c, 0, refused(err.Error(), "run trainer and agent as the same user"))
	}
	_ = c.SetReadDeadline(time.Now().Add(helloWait))
	return s.first(c, cred)
}

// Buffered is the bytes decoded and not delivered, of all streams.
func (s *Server) Buffered() int64 { return s.buffered.Load() }
