package serve_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// gate is a store whose commits wait while it is shut.
type gate struct {
	*memstore.Store
	shut  atomic.Bool
	open  chan struct{}
	fails atomic.Bool
}

func newGate() *gate {
	g := &gate{Store: memstore.New(), open: make(chan struct{})}
	g.Before = func(int, []shardsvc.Put) error {
		if g.shut.Load() {
			<-g.open
		}
		if g.fails.Load() {
			return syscall.EIO
		}
		return nil
	}
	return g
}

func (g *gate) release() {
	g.shut.Store(false)
	close(g.open)
}

// listen reads the stream in the background.
func (a *agent) listen() (<-chan *headracev1.MasterMessage, <-chan error) {
	msgs, end := make(chan *headracev1.MasterMessage, 10_000), make(chan error, 1)
	go func() {
		for {
			m, err := a.stream.Recv()
			if err != nil {
				end <- err
				return
			}
			msgs <- m
		}
	}()
	return msgs, end
}

func TestNoGrantLeavesBeforeItsBatchIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newGate()
		m := startMaster(t, st, nil)
		m.setUp(1000)
		a := m.joined("a", 0)
		msgs, _ := a.listen()

		st.shut.Store(true)
		a.send(&headracev1.AgentMessage{Joins: []*headracev1.Join{{Worker: 2, Rank: 1, Incarnation: 9, WorldSize: 8}}})
		synctest.Wait() // the committer has the batch with the join, and waits for the store
		a.send(&headracev1.AgentMessage{Requests: []*headracev1.LeaseRequest{{Id: 1, Worker: 1, Dataset: 1}}})
		synctest.Wait()
		if len(msgs) != 0 {
			t.Fatalf("before the commit was durable the agent was sent %v", <-msgs)
		}
		st.release()
		synctest.Wait()
		joins, grants := 0, 0
		for len(msgs) > 0 {
			m := <-msgs
			joins, grants = joins+len(m.Joins), grants+len(m.Grants)
		}
		if joins != 1 || grants != 1 {
			t.Fatalf("after the commit the agent has %d joins and %d grants", joins, grants)
		}
		a.hangUp()
		m.must(m.stop())
	})
}

func TestAFailedCommitEndsTheMasterAndNothingOfItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newGate()
		m := startMaster(t, st, nil)
		m.setUp(1000)
		a := m.joined("a", 0)
		g := a.grant()
		msgs, end := a.listen()
		st.fails.Store(true)
		a.send(&headracev1.AgentMessage{Acks: []*headracev1.Ack{{Token: g.Token, Prefix: g.LeaseEnd, Worker: 1}}})
		if err := <-m.ended; !errors.Is(err, syscall.EIO) {
			t.Fatalf("Run returned %v", err)
		}
		m.ended <- nil
		if err := <-end; status.Code(err) != codes.Unavailable {
			t.Fatalf("the agent was told %v", err)
		}
		if len(msgs) != 0 {
			t.Fatalf("after a failed commit the agent was sent %v", <-msgs)
		}
		if _, err := m.apply(clicks); status.Code(err) != codes.Unavailable {
			t.Fatalf("a call after the end of the master got %v", err)
		}
		a.hangUp()
		m.must(m.stop())
	})
}

// Guarantee 2: a master that was idle writes to its store before it answers. Another master may
// have taken the store over, and then the write fails. Without the write, an echo would make an
// agent trust a master that has been replaced.
func TestAMasterThatWasIdleProvesThatItsStoreIsItsOwnBeforeItAnswers(t *testing.T) {
	for _, idle := range []time.Duration{201 * time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			st := newGate()
			m := startMaster(t, st, func(c *serve.Config) { c.TTL = 5 * time.Second })
			m.setUp(1000)
			a := m.joined("a", 0)
			msgs, end := a.listen()
			for at := int64(2); idle > 0; at++ {
				wait := min(idle, time.Second)
				time.Sleep(wait) // in the bubble's time
				if idle -= wait; idle > 0 {
					a.send(&headracev1.AgentMessage{SentAt: at})
				}
			}
			synctest.Wait()
			for len(msgs) > 0 {
				<-msgs
			}
			st.fails.Store(true)
			a.send(&headracev1.AgentMessage{SentAt: 1 << 40})
			synctest.Wait()
			if len(msgs) != 0 {
				t.Fatalf("the master answered %v before it had written to its store", <-msgs)
			}
			if err := <-m.ended; !errors.Is(err, syscall.EIO) {
				t.Errorf("the master ended with %v", err)
			}
			m.ended <- nil
			<-end
			a.hangUp()
			m.must(m.stop())
		})
	}
}

// Guarantee 2: the same is true of marks. By marks, brokers and the landing delete records.
func TestAMasterThatWasIdleProvesThatItsStoreIsItsOwnBeforeItTellsMarks(t *testing.T) {
	for _, marks := range []func(*serve.Server, context.Context) ([]sources.Mark, error){
		func(s *serve.Server, ctx context.Context) ([]sources.Mark, error) { return s.CommitMarks(ctx, 1) },
		func(s *serve.Server, ctx context.Context) ([]sources.Mark, error) { return s.RetainMarks(ctx, 1) },
	} {
		synctest.Test(t, func(t *testing.T) {
			st := newGate()
			m := startMaster(t, st, func(c *serve.Config) { c.TTL = 5 * time.Second })
			m.setUp(1000)
			if _, err := marks(m.srv, t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			st.fails.Store(true)
			if got, err := marks(m.srv, t.Context()); err == nil {
				t.Fatalf("the master told %v before it had written to its store", got)
			}
			if err := <-m.ended; !errors.Is(err, syscall.EIO) {
				t.Errorf("the master ended with %v", err)
			}
			m.ended <- nil
			m.must(m.stop())
		})
	}
}

func TestALoopThatMayNotGoOnHoldsTheAgentsAndCostsNobodyItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newGate()
		m := startMaster(t, st, func(c *serve.Config) { c.MaxPending = 50; c.TTL = time.Second })
		m.setUp(100_000)
		a := m.joined("a", 0)
		g := a.grant()
		msgs, end := a.listen()

		st.shut.Store(true)
		const total = 20_000
		var sent atomic.Int64
		go func() {
			for i := range int64(total) {
				if a.stream.Send(&headracev1.AgentMessage{SentAt: i + 2, Acks: []*headracev1.Ack{{Token: g.Token, Prefix: 1, Worker: 1}}}) != nil {
					return
				}
				sent.Add(1)
			}
		}()
		synctest.Wait()
		if n := sent.Load(); n == total {
			t.Fatal("the agent could send everything, though the loop reads nothing")
		}
		time.Sleep(20 * time.Second) // twenty TTLs
		synctest.Wait()
		st.release()
		synctest.Wait()
		if n := sent.Load(); n != total {
			t.Fatalf("only %d of %d sent after the disk came back", n, total)
		}
		select {
		case err := <-end:
			t.Fatalf("the stream ended: %v", err)
		default:
		}
		var echo int64
		for len(msgs) > 0 {
			if m := <-msgs; m.Echo != 0 {
				echo = m.Echo
			}
		}
		if echo != total+1 {
			t.Fatalf("newest echo %d, want %d", echo, total+1)
		}
		// The agent still holds its lease, so it can ack the rest.
		a.send(&headracev1.AgentMessage{Acks: []*headracev1.Ack{{Token: g.Token, Prefix: g.LeaseEnd, Worker: 1}}})
		synctest.Wait()
		if r := (<-msgs).Acks; len(r) != 1 || r[0].Code != headracev1.AckResult_DURABLE {
			t.Fatalf("the ack of the held lease got %v", r)
		}
		a.hangUp()
		m.must(m.stop())
	})
}

func TestAnAgentThatDoesNotReadIsClosedAndNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMaster(t, memstore.New(), func(c *serve.Config) { c.OutboxBytes = 64 << 10 })
		m.setUp(1 << 40)
		deaf, other := m.joined("deaf", 0), m.joined("other", 1)
		for id := range uint64(5) {
			msg := &headracev1.AgentMessage{Requests: []*headracev1.LeaseRequest{{Id: id + 1, Worker: 1, Dataset: 1, Count: 4000}}}
			if err := deaf.stream.Send(msg); err != nil && err != io.EOF { // io.EOF: the master has closed the stream already
				t.Fatal(err)
			}
		}
		synctest.Wait()
		err := deaf.until(func(*headracev1.MasterMessage) bool { return false })
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("the stream of the agent that does not read ended with %v", err)
		}
		other.mustAck(other.grant())
		deaf.hangUp()
		other.hangUp()
		m.must(m.stop())
	})
}

// Guarantee 6: the master hands the rows on one TTL after it last heard from the agent. Here they
// must be with another one at most 500 ms later.
func TestRowsOfASilentAgentAreWithOthersAfterItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 2 * time.Second
		m := startMaster(t, memstore.New(), func(c *serve.Config) { c.TTL = ttl })
		m.setUp(100)
		silent, other := m.joined("silent", 0), m.joined("other", 1)
		g := silent.grant()
		began := time.Now()
		msgs, _ := other.listen()
		other.send(&headracev1.AgentMessage{Requests: []*headracev1.LeaseRequest{{Id: 1, Worker: 1, Dataset: 1}}})
		var got *headracev1.Grant
		for beat := int64(2); got == nil; beat++ {
			time.Sleep(ttl / 5)
			other.send(&headracev1.AgentMessage{SentAt: beat})
			synctest.Wait()
			for len(msgs) > 0 {
				for _, x := range (<-msgs).Grants {
					got = x
				}
			}
			if time.Since(began) > ttl+500*time.Millisecond {
				t.Fatal("the rows of the silent agent were not granted within TTL + 500 ms")
			}
		}
		if time.Since(began) < ttl {
			t.Fatalf("the rows of the silent agent were granted before its TTL, after %v", time.Since(began))
		}
		if span(got) != span(g) || got.Tries != 1 {
			t.Fatalf("granted %v", got)
		}
		// The token of the silent agent's lease changes nothing any more.
		err := silent.until(func(*headracev1.MasterMessage) bool { return false })
		if status.Code(err) != codes.Aborted {
			t.Fatalf("the silent agent's stream: %v", err)
		}
		silent.hangUp()
		other.hangUp()
		m.must(m.stop())
	})
}
