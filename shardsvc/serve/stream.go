package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/wire"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// shards is the Shards service.
type shards struct {
	headracev1.UnimplementedShardsServer
	s *Server
}

// stream is one agent's session stream.
type stream struct {
	s       *Server
	session shardsvc.Session
	agent   string // its name
	grpc    grpc.ServerStream
	out     *outbox

	once sync.Once
	end  chan struct{} // closed by close
	err  error         // the stream's status; set before end is closed

	// Used by the loop: the index of this stream's echo in the batch with number echoSeq.
	echoSeq uint64
	echoAt  int
}

// close ends the stream with err. Only the first call counts.
func (st *stream) close(err error) {
	st.once.Do(func() {
		st.err = err
		close(st.end)
	})
}

// Session is the handler of a stream. It starts reader and sender and waits for the first
// reason to end. When it returns, gRPC ends the stream, and both goroutines end.
func (h *shards) Session(g grpc.BidiStreamingServer[headracev1.AgentMessage, headracev1.MasterMessage]) error {
	st := &stream{s: h.s, grpc: g, out: newOutbox(h.s.cfg.OutboxBytes), end: make(chan struct{})}
	if !h.s.begin() {
		return status.Error(codes.Unavailable, h.s.stopErr().Error())
	}
	go func() {
		defer h.s.readers.Done()
		st.read()
	}()
	go st.send()
	select {
	case <-st.end:
		return st.err
	case <-g.Context().Done():
		st.close(status.FromContextError(g.Context().Err()).Err())
	case <-h.s.stopping:
		st.close(status.Error(codes.Unavailable, h.s.stopErr().Error()))
	}
	<-st.end
	return st.err
}

// begin counts a goroutine that Run must wait for. It returns false if the server is
// stopping.
func (s *Server) begin() bool {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	select {
	case <-s.stopping:
		return false
	default:
		s.readers.Add(1)
		return true
	}
}

// read turns messages into events until the stream breaks. It then tells the core that the
// session is lost.
func (st *stream) read() {
	greeted := false
	for {
		in := newInbound(st)
		err := st.grpc.RecvMsg(in)
		if err == nil && !greeted {
			if err = st.hello(in); err == nil {
				greeted = true
				in.Event.Session = st.session
			}
		} else if err == nil && in.Event.Hello != nil {
			err = status.Error(codes.InvalidArgument, "hello may only be in the first message of a stream")
		}
		if err != nil {
			in.free()
			st.broke(err)
			break
		}
		st.log(in.Notes)
		if !st.s.push(item{in: in}) {
			break
		}
	}
	if greeted {
		st.s.push(item{lost: st})
	}
}

// log says at Debug why an agent released leases, and how its trainers ended.
func (st *stream) log(notes []wire.Note) {
	if len(notes) == 0 || !st.s.cfg.Logger.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	for _, n := range notes {
		if n.Token != (shardsvc.Token{}) {
			st.s.cfg.Logger.Debug("an agent released a lease", "agent", st.agent, "lease", leaseText(n.Token), "reason", n.Why)
		} else {
			st.s.cfg.Logger.Debug("a trainer left", "agent", st.agent, "worker", n.Worker, "how", n.Why)
		}
	}
}

func (st *stream) broke(err error) {
	if errors.Is(err, io.EOF) {
		st.close(nil)
		return
	}
	st.close(err)
}

// maxAboutBytes bounds what an agent says about itself: it is kept, and stands in reports.
const maxAboutBytes = 16 << 10

func aboutBytes(a *wire.About) int {
	n := len(a.Name) + len(a.Job) + len(a.Version) + len(a.Host)
	for _, g := range a.Gpus {
		n += len(g)
	}
	return n
}

// hello checks an agent's first message and gives the stream its session.
func (st *stream) hello(in *inbound) error {
	f := in.About
	switch {
	case f == nil:
		return statusOf(codes.InvalidArgument, errors.New("the first message of a session has no hello"), detail{Field: "hello"})
	case aboutBytes(f) > maxAboutBytes:
		return statusOf(codes.InvalidArgument, fmt.Errorf("the agent's name, host, version and devices have %d bytes together, at most %d are allowed", aboutBytes(f), maxAboutBytes),
			detail{Field: "hello", Hint: "give the agent a shorter --name"})
	case f.Protocol != wire.Protocol:
		return statusOf(codes.FailedPrecondition, fmt.Errorf("agent %q speaks session protocol %d, this master speaks %d", f.Name, f.Protocol, wire.Protocol),
			detail{Field: "hello.protocol", Hint: fmt.Sprintf("run the same version on both sides: agent %s, master %s", orUnknown(f.Version), orUnknown(st.s.cfg.Version))})
	case f.Job != "" && f.Job != st.s.cfg.Job:
		return statusOf(codes.FailedPrecondition, fmt.Errorf("agent %q belongs to job %q, this master runs job %q", f.Name, f.Job, st.s.cfg.Job),
			detail{Field: "hello.job", Hint: "give the agent this master's job, or the address of its own master"})
	case f.Name == "":
		return statusOf(codes.InvalidArgument, errors.New("an agent needs a name"), detail{Field: "hello.agent"})
	}
	st.session, st.agent = st.s.sessions.add(st), f.Name
	return nil
}

func orUnknown(version string) string {
	if version == "" {
		return "unknown"
	}
	return version
}

// send sends the messages of the outbox until the stream ends.
func (st *stream) send() {
	for {
		select {
		case <-st.out.ready:
		case <-st.end:
			return
		}
		for {
			buf := st.out.take()
			if buf == nil {
				break
			}
			if err := st.grpc.SendMsg(&rawMessage{buf}); err != nil {
				st.close(err)
				return
			}
		}
	}
}

// streams finds the stream of a session. Every reply reads it, and only connecting agents
// change it, so it is copied on write and read without a lock.
type streams struct {
	mu   sync.Mutex
	last shardsvc.Session
	all  atomic.Pointer[map[shardsvc.Session]*stream]
}

func (s *streams) get(n shardsvc.Session) *stream {
	if all := s.all.Load(); all != nil {
		return (*all)[n]
	}
	return nil
}

func (s *streams) add(st *stream) shardsvc.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.change(func(m map[shardsvc.Session]*stream) { m[s.last] = st })
	return s.last
}

func (s *streams) remove(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(func(m map[shardsvc.Session]*stream) { delete(m, st.session) })
}

func (s *streams) change(f func(map[shardsvc.Session]*stream)) {
	next := map[shardsvc.Session]*stream{}
	if all := s.all.Load(); all != nil {
		for k, v := range *all {
			next[k] = v
		}
	}
	f(next)
	s.all.Store(&next)
}
