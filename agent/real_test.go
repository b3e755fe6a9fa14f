package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headrace/headrace/agent"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// realMaster is the shard service as a master runs it. Its store survives a restart.
type realMaster struct {
	t     *testing.T
	store *memstore.Store
	model string
	ttl   time.Duration
	addr  string
	root  string
	srv   *serve.Server
	grpc  *grpc.Server
	stop  func()
}

func newRealMaster(t *testing.T, model, yaml, root string, ttl time.Duration) *realMaster {
	t.Helper()
	m := &realMaster{t: t, store: memstore.New(), model: model, ttl: ttl, root: root, addr: ownPort(t)}
	m.start()
	t.Cleanup(func() { m.stop() })
	conn := m.conn()
	defer conn.Close()
	_, err := pb.NewDatasetsClient(conn).Apply(t.Context(), &pb.ApplyRequest{Yaml: yaml})
	check(t, err)
	spec := must(dataset.Parse([]byte(yaml), ""))(t)
	src, err := m.open(t.Context(), spec)
	check(t, err)
	defer src.Close()
	id := sources.PartitionID("files:" + spec.Name)
	numbers, err := m.srv.AddPartitions(t.Context(), 1, []serve.NewPartition{{ID: id}}, false)
	check(t, err)
	segments, err := src.Segments(t.Context(), id, -1, 1000)
	check(t, err)
	check(t, errors.Join(m.srv.PartitionsListed(t.Context(), 1), m.srv.AddSegments(t.Context(), numbers[0], -1, segments, true)))
	return m
}

func (m *realMaster) start() {
	m.t.Helper()
	srv, err := serve.New(serve.Config{Store: m.store, Job: "job", Model: m.model, TTL: m.ttl, Version: "test", Logger: logger(m.t).With("who", "master")})
	check(m.t, err)
	l, err := net.Listen("tcp", m.addr)
	check(m.t, err)
	m.addr = l.Addr().String()
	g := grpc.NewServer()
	srv.Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(l) })
	wg.Go(func() { _ = srv.Run(ctx) })
	m.srv, m.grpc = srv, g
	m.stop = sync.OnceFunc(func() {
		g.Stop()
		cancel()
		wg.Wait()
	})
}

// restart ends the master between two commits and starts it again from its store.
func (m *realMaster) restart() {
	m.t.Helper()
	m.stop()
	m.store = m.store.Reopen()
	m.start()
}

func (m *realMaster) conn() *grpc.ClientConn {
	c, err := grpc.NewClient("passthrough:///"+m.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(m.t, err)
	return c
}

func (m *realMaster) open(_ context.Context, spec *dataset.Spec) (sources.Source, error) {
	return spec.Open(dataset.Opening{AllowedRoots: []string{m.root}, Logger: slog.New(slog.DiscardHandler)})
}

func (m *realMaster) agent(name, socket string) *running {
	conn := m.conn()
	return startWith(m.t, conn, agent.Config{Name: name, Conn: conn, Socket: socket, Open: m.open, Version: "test", ShareFrom: 1, Logger: logger(m.t).With("who", name)})
}

const leased = lines + `lease: {initial: 2KiB, min: 512, max: 64KiB, target: 100ms}
`

// untilGone waits until the master has no process of a rank any more. Acks that its agent sent before
// are durable then.
func (m *realMaster) untilGone(rank uint32) {
	m.t.Helper()
	conn := m.conn()
	defer conn.Close()
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	defer cancel()
	for {
		job, err := pb.NewDatasetsClient(conn).Job(ctx, &pb.JobRequest{})
		check(m.t, err)
		if !slices.ContainsFunc(job.Workers, func(w *pb.WorkerState) bool { return w.Rank == rank }) {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			m.t.Fatalf("the master still has a process of rank %d", rank)
		}
	}
}

// Guarantees 1, 2, 3 and 6 together: a trainer is ended, then its agent, then the master. Every record
// gets into the model once. (If a trainer ended together with its agent, steps that it had reported
// could be lost: docs/GUARANTEES.md, 5; internal/proof/chaos counts them.)
func TestEveryRecordIsAppliedWhoeverIsKilled(t *testing.T) {
	root, begins := input(t, 30000, 7000)
	m := newRealMaster(t, "shared", fmt.Sprintf(leased, root), root, longTTL)
	left, right := socketIn(t), socketIn(t)
	a := m.agent("left", left)
	m.agent("right", right)
	env := func(rank, hold int) []string {
		return []string{fmt.Sprintf("HEADRACE_TEST_RANK=%d", rank), fmt.Sprintf("HEADRACE_TEST_HOLD=%d", hold)}
	}
	stays := trainerProcess(t, left, env(0, 40)...)
	killed := trainerProcess(t, left, env(1, 20)...)
	other := trainerProcess(t, right, env(2, 60)...)
	for _, c := range []*child{stays, killed, other} {
		if !c.await("holding") {
			t.Fatal("a trainer ended early")
		}
	}
	check(t, killed.cmd.Process.Signal(syscall.SIGKILL))
	m.untilGone(1)
	check(t, a.stop())
	m.agent("left", left)
	stays.say("go")
	if !stays.await("back") {
		t.Fatal("the trainer did not find the new agent")
	}
	m.restart()
	other.say("go")
	again := trainerProcess(t, right, env(1, 0)...)
	for name, c := range map[string]*child{"stays": stays, "other": other, "again": again} {
		if !c.await("done") {
			t.Fatalf("%s did not finish", name)
		}
	}
	killed.await("never said") // reads all its output to the end
	wantOnce(t, begins, applied(stays, killed, other, again), 0)
}

func TestAPrivateJobsTrainerGoesOnThroughARestartOfTheMaster(t *testing.T) {
	root, begins := input(t, 3000, 1000)
	m := newRealMaster(t, "private", fmt.Sprintf(leased, root), root, longTTL)
	a := m.agent("node", socketIn(t))
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 64, Track: true}))(t)
	check(t, s.credit(4))
	seen := map[int]int{}
	note := func(b *batch) {
		for i, at := range b.offsets {
			seen[begins[[2]int64{b.segment[i], at}]]++
		}
	}
	for n := range 10 {
		note(must(s.next(0))(t))
		check(t, s.step(int64(n+1), 1))
		check(t, s.credit(1))
		if n == 5 {
			m.restart()
		}
	}
	for {
		b, err := s.next(0)
		if err == errEnd {
			break
		}
		check(t, err)
		note(b)
		check(t, s.step(int64(s.through)+1, 1))
		check(t, s.credit(1))
	}
	for i := range 3000 {
		if seen[i] != 1 {
			t.Fatalf("record %d came %d times", i, seen[i])
		}
	}
	s.close()
	tr.bye()
}

// A lease keeps its token when the master restarts. So the tokens in a trainer's frames prove that the
// batches are its own, however often the master and then the agent were started again.
func TestATrainersRowsAreItsOwnByTokensOfTermsAgo(t *testing.T) {
	for restarts := 1; restarts <= 2; restarts++ {
		t.Run(fmt.Sprint(restarts), func(t *testing.T) {
			root, begins := input(t, 3000, 3000)
			m := newRealMaster(t, "private", fmt.Sprintf(lines, root)+"lease: {initial: 32KiB, min: 32KiB, max: 32KiB}\n", root, longTTL)
			socket := socketIn(t)
			a := m.agent("node", socket)
			open := frame.Open{Dataset: "lines", Rows: 16, Track: true}
			tr := must(hello(socket, frame.Hello{WorldSize: 1}))(t)
			s := must(tr.open(1, open))(t)
			seen := map[int]int{}
			step := func() {
				b := must(s.next(0))(t)
				for i, at := range b.offsets {
					seen[begins[[2]int64{b.segment[i], at}]]++
				}
				check(t, s.step(int64(s.through)+1, 1))
			}
			took := 0
			for n := range restarts + 1 {
				if n > 0 {
					m.restart()
				}
				check(t, s.credit(3))
				for range 3 {
					if b := must(s.next(took))(t); b.spans[0].Term != 1 {
						t.Fatalf("batch %d names its lease by %+v, want a token of term 1", b.number, b.spans[0])
					}
					took++
				}
				step()
				took--
				check(t, s.acked(s.through)) // an answer shows that the agent is back at the master with the lease
			}
			check(t, a.stop())
			m.agent("node", socket)
			tr, s, err := comeBack(tr, s, open)
			check(t, err)
			for range took {
				step()
			}
			check(t, s.acked(s.through))
			check(t, s.credit(200))
			for {
				if _, err := s.next(0); err == errEnd {
					break
				}
				step()
			}
			for i := range 3000 {
				if seen[i] != 1 {
					t.Fatalf("record %d came %d times", i, seen[i])
				}
			}
			s.close()
			tr.bye()
		})
	}
}

func TestAShuffledPassGivesEachRecordOnce(t *testing.T) {
	root, begins := input(t, 5000, 1300)
	m := newRealMaster(t, "shared", fmt.Sprintf(leased, root)+"shuffle: {seed: 7, block: 700}\n", root, longTTL)
	a := m.agent("node", socketIn(t))
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 100, Track: true}))(t)
	check(t, s.credit(8))
	seen := map[int]int{}
	drainStream(t, s, 100, begins, seen)
	for i := range 5000 {
		if seen[i] != 1 {
			t.Fatalf("record %d came %d times", i, seen[i])
		}
	}
	check(t, s.acked(s.through))
	s.close()
	tr.bye()
}
