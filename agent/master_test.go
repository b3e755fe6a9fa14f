package agent_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/proof/toymaster"
	"github.com/headrace/headrace/sources"
)

// master is a toymaster behind gRPC, with one dataset of real files.
type master struct {
	pb.UnimplementedShardsServer
	pb.UnimplementedDatasetsServer
	t    *testing.T
	spec *dataset.Spec
	root string
	addr string

	mu      sync.Mutex
	toy     *toymaster.Master
	changed chan struct{} // closed and replaced after each message
	server  *grpc.Server
	serving sync.WaitGroup
	lost    []context.CancelFunc
	asked   chan struct{} // gets a value when a silent master is asked Describe
	mute    bool
}

// longTTL is for sessions that must not expire in a test, even on a busy machine.
const longTTL = time.Minute

// newMaster plans the files of a spec's YAML and serves.
func newMaster(t *testing.T, model, yaml, root string) *master {
	t.Helper()
	spec, err := dataset.Parse([]byte(yaml), "test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := &master{t: t, spec: spec, root: root, changed: make(chan struct{}), asked: make(chan struct{}, 64)}
	m.toy = toymaster.New(model, m.list()...)
	m.toy.Identity, m.toy.Units, m.toy.TTLMillis = "files:"+spec.Name, 4096, uint32(longTTL.Milliseconds())
	m.serve(ownPort(t))
	t.Cleanup(m.stop)
	return m
}

func (m *master) list() (all []toymaster.Segment) {
	src, err := m.spec.Open(dataset.Opening{AllowedRoots: []string{m.root}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		m.t.Fatal(err)
	}
	defer src.Close()
	after := int64(-1)
	for {
		segments, err := src.Segments(m.t.Context(), sources.PartitionID("files:"+m.spec.Name), after, 100)
		if err != nil {
			m.t.Fatal(err)
		}
		for _, s := range segments {
			all = append(all, toymaster.Segment{ID: s.ID, Start: s.Start, End: s.End, Locator: s.Locator, Name: s.Name})
			after = s.ID
		}
		if len(segments) < 100 {
			return all
		}
	}
}

func (m *master) serve(addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		m.t.Fatal(err)
	}
	m.addr = l.Addr().String()
	m.server = grpc.NewServer(grpc.MaxRecvMsgSize(link.MaxMessage))
	pb.RegisterShardsServer(m.server, m)
	pb.RegisterDatasetsServer(m.server, m)
	m.serving.Go(func() { _ = m.server.Serve(l) })
}

func (m *master) stop() {
	m.server.Stop()
	m.serving.Wait()
}

// restart kills the master and starts it again. It forgets everything that is not settled.
func (m *master) restart() {
	m.stop()
	m.mu.Lock()
	m.toy.Restart()
	m.mu.Unlock()
	m.serve(m.addr)
}

// do runs f with the toy master, and wakes the calls of until.
func (m *master) do(f func(*toymaster.Master)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.toy)
	close(m.changed)
	m.changed = make(chan struct{})
}

// until waits for f to hold.
func (m *master) until(what string, f func(*toymaster.Master) bool) {
	m.t.Helper()
	for {
		m.mu.Lock()
		ok, changed := f(m.toy), m.changed
		m.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline(m.t):
			m.t.Fatalf("the master did not see this in time: %s", what)
		}
	}
}

func (m *master) Session(stream grpc.BidiStreamingServer[pb.AgentMessage, pb.MasterMessage]) error {
	var outMu sync.Mutex
	var out []*pb.MasterMessage
	signal := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	var s *toymaster.Session
	m.do(func(toy *toymaster.Master) {
		s = toy.Open(func(msg *pb.MasterMessage) {
			outMu.Lock()
			out = append(out, msg)
			outMu.Unlock()
			select {
			case signal <- struct{}{}:
			default:
			}
		})
		m.lost = append(m.lost, cancel)
	})
	defer m.do(func(toy *toymaster.Master) { toy.Close(s) })
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer cancel()
		for {
			select {
			case <-signal:
			case <-ctx.Done():
				return
			}
			outMu.Lock()
			batch := out
			out = nil
			outMu.Unlock()
			for _, msg := range batch {
				if stream.Send(msg) != nil {
					return
				}
			}
		}
	})
	in := make(chan *pb.AgentMessage)
	wg.Go(func() {
		defer close(in)
		for {
			msg, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case in <- msg:
			case <-ctx.Done():
				return
			}
		}
	})
	for {
		select {
		case msg, ok := <-in:
			if !ok {
				return nil
			}
			m.do(func(toy *toymaster.Master) { toy.Handle(s, msg) })
		case <-ctx.Done():
			// The goroutine in Recv ends only after this call has returned, so drain its messages.
			go func() {
				for range in {
				}
			}()
			return status.Error(codes.Unavailable, "the master cuts the stream")
		}
	}
}

// cutStreams breaks every agent's stream, as a network does.
func (m *master) cutStreams() {
	m.mu.Lock()
	lost := m.lost
	m.lost = nil
	m.mu.Unlock()
	for _, cancel := range lost {
		cancel()
	}
}

// silent makes the master answer no Describe, or answer again.
func (m *master) silent(mute bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mute = mute
}

func (m *master) Describe(ctx context.Context, in *pb.DescribeRequest) (*pb.Dataset, error) {
	m.mu.Lock()
	mute := m.mute
	m.mu.Unlock()
	if mute {
		m.asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if in.Name != m.spec.Name {
		st, err := status.New(codes.NotFound, "there is no dataset "+in.Name).WithDetails(&pb.ErrorDetail{Dataset: in.Name, Hint: "there is " + m.spec.Name})
		if err != nil {
			return nil, err
		}
		return nil, st.Err()
	}
	text, err := m.spec.JSON()
	if err != nil {
		return nil, err
	}
	return &pb.Dataset{Id: 1, Name: m.spec.Name, SpecJson: string(text), Unit: "bytes"}, nil
}

// conn dials the master as cmd does, in short.
func (m *master) conn() *grpc.ClientConn {
	c, err := grpc.NewClient("passthrough:///"+m.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(link.MaxMessage)))
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

func (m *master) open(_ context.Context, spec *dataset.Spec) (sources.Source, error) {
	return spec.Open(dataset.Opening{AllowedRoots: []string{m.root}, Logger: slog.New(slog.DiscardHandler)})
}

func logger(t *testing.T) *slog.Logger {
	if os.Getenv("HEADRACE_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	var w io.Writer = os.Stderr
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
