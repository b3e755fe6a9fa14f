package serve_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/proof/leaks"
	"github.com/headrace/headrace/internal/store"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

const clicks = `
name: clicks
files: {root: /data}
decode:
  format: lines
  columns: [{name: line, path: $value, dtype: bytes}]
lease: {initial: 100, min: 100, max: 100}
`

// master is one life of a server, with gRPC over memory.
type master struct {
	t      testing.TB
	srv    *serve.Server
	conn   *grpc.ClientConn
	grpc   *grpc.Server
	cancel context.CancelFunc
	ended  chan error
	over   bool
}

func startMaster(t testing.TB, st store.Store, set func(*serve.Config)) *master {
	t.Helper()
	// An agent of a test sends no heartbeats, and a busy machine may give this process no CPU for as long
	// as the default TTL.
	cfg := serve.Config{Store: st, Job: "job", Version: "test", TTL: time.Hour}
	if set != nil {
		set(&cfg)
	}
	srv, err := serve.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := &master{t: t, srv: srv, ended: make(chan error, 1)}
	lis := bufconn.Listen(1 << 20)
	m.grpc = grpc.NewServer()
	srv.Register(m.grpc)
	go m.grpc.Serve(lis)
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	go func() { m.ended <- srv.Run(ctx) }()
	m.conn, err = grpc.NewClient("passthrough:///master", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// stop ends the master and returns what Run said.
func (m *master) stop() error {
	if m.over {
		return nil
	}
	m.over = true
	m.cancel()
	err := <-m.ended
	m.conn.Close()
	m.grpc.Stop()
	return err
}

func (m *master) datasets() headracev1.DatasetsClient { return headracev1.NewDatasetsClient(m.conn) }

func (m *master) apply(yaml string) (*headracev1.ApplyReply, error) {
	return m.datasets().Apply(m.t.Context(), &headracev1.ApplyRequest{Yaml: yaml})
}

// list makes dataset 1 one partition with one segment of units [0, end). A master that was
// killed meanwhile may know some of it already.
func (m *master) list(end int64) error {
	ctx := m.t.Context()
	no, err := m.srv.AddPartitions(ctx, 1, []serve.NewPartition{{ID: "files:clicks"}}, false)
	if err != nil {
		return err
	}
	all, err := m.srv.Datasets(ctx)
	if err != nil {
		return err
	}
	return errors.Join(
		m.srv.PartitionsListed(ctx, 1),
		m.srv.AddSegments(ctx, no[0], all[0].Partitions[0].LastSegment, []sources.Segment{{ID: 0, End: end, Sealed: true, Locator: []byte("loc"), Name: "a.txt"}}, true))
}

func (m *master) must(errs ...error) {
	m.t.Helper()
	if err := errors.Join(errs...); err != nil {
		m.t.Fatal(err)
	}
}

func (m *master) setUp(units int64) {
	m.t.Helper()
	_, err := m.apply(clicks)
	m.must(err, m.list(units))
}

// agent is the other end of a session stream, used by one goroutine.
type agent struct {
	t      testing.TB
	stream grpc.BidiStreamingClient[headracev1.AgentMessage, headracev1.MasterMessage]
	cancel context.CancelFunc
	next   uint64 // number of the newest request
}

func (m *master) connect(hello *headracev1.AgentMessage) (*agent, *headracev1.MasterMessage, error) {
	ctx, cancel := context.WithCancel(context.Background())
	st, err := headracev1.NewShardsClient(m.conn).Session(ctx)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	a := &agent{t: m.t, stream: st, cancel: cancel}
	if err := st.Send(hello); err != nil {
		_, err = st.Recv()
		cancel()
		return nil, nil, err
	}
	reply, err := st.Recv()
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return a, reply, nil
}

func hello(name string, incarnation uint64) *headracev1.AgentMessage {
	return &headracev1.AgentMessage{Hello: &headracev1.Hello{Protocol: 1, Job: "job", Agent: name, Incarnation: incarnation}, SentAt: 1}
}

// joined returns an agent with one worker of that rank.
func (m *master) joined(name string, rank uint32) *agent {
	m.t.Helper()
	msg := hello(name, 7)
	msg.Joins = []*headracev1.Join{{Worker: 1, Rank: rank, Incarnation: uint64(100 + rank), WorldSize: 8}}
	a, reply, err := m.connect(msg)
	if err != nil {
		m.t.Fatal(err)
	}
	if len(reply.Joins) != 1 || reply.Joins[0].Refused {
		m.t.Fatalf("join: %v", reply)
	}
	return a
}

func (a *agent) send(msg *headracev1.AgentMessage) {
	a.t.Helper()
	if err := a.stream.Send(msg); err != nil {
		a.t.Fatal(err)
	}
}

// until reads messages until f is true for one.
func (a *agent) until(f func(*headracev1.MasterMessage) bool) error {
	for {
		m, err := a.stream.Recv()
		if err != nil {
			return err
		}
		if f(m) {
			return nil
		}
	}
}

// ask sends one request and returns its grant, or the first standing that answers it.
func (a *agent) ask() (*headracev1.Grant, *headracev1.Standing, error) {
	a.next++
	id := a.next
	if err := a.stream.Send(&headracev1.AgentMessage{Requests: []*headracev1.LeaseRequest{{Id: id, Worker: 1, Dataset: 1}}}); err != nil {
		_, err := a.stream.Recv()
		return nil, nil, err
	}
	return a.answer(id)
}

func (a *agent) answer(id uint64) (g *headracev1.Grant, s *headracev1.Standing, err error) {
	err = a.until(func(m *headracev1.MasterMessage) bool {
		for _, x := range m.Grants {
			if x.Request == id {
				g = x
			}
		}
		for _, x := range m.Standings {
			if x.Request == id {
				s = x
			}
		}
		return g != nil || s != nil
	})
	return g, s, err
}

func (a *agent) grant() *headracev1.Grant {
	a.t.Helper()
	g, s, err := a.ask()
	if err != nil || g == nil {
		a.t.Fatalf("no grant: %v %v", s, err)
	}
	return g
}

// ack sends one and returns its result.
func (a *agent) ack(tok *headracev1.Token, prefix int64) (*headracev1.AckResult, error) {
	if err := a.stream.Send(&headracev1.AgentMessage{Acks: []*headracev1.Ack{{Token: tok, Prefix: prefix, Step: 0, Worker: 1}}}); err != nil {
		_, err := a.stream.Recv()
		return nil, err
	}
	var res *headracev1.AckResult
	err := a.until(func(m *headracev1.MasterMessage) bool {
		for _, x := range m.Acks {
			if x.Prefix == prefix && x.Token.GetSequence() == tok.Sequence {
				res = x
			}
		}
		return res != nil
	})
	return res, err
}

func (a *agent) mustAck(g *headracev1.Grant) {
	a.t.Helper()
	res, err := a.ack(g.Token, g.LeaseEnd)
	if err != nil || res.Code != headracev1.AckResult_DURABLE {
		a.t.Fatalf("ack of [%d, %d): %v %v", g.LeaseStart, g.LeaseEnd, res, err)
	}
}

func (a *agent) hangUp() { a.cancel() }

func span(g *headracev1.Grant) string { return fmt.Sprintf("[%d, %d)", g.LeaseStart, g.LeaseEnd) }

func noLeaks(t *testing.T) {
	t.Helper()
	opt := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaks.None(t, opt) })
}
