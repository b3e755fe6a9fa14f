package serve_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/serve"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func held(g *headracev1.Grant, from int64) *headracev1.Held {
	return &headracev1.Held{Token: g.Token, Worker: 1, Dataset: g.Dataset, Partition: g.Partition, Pass: g.Pass, Segment: g.Segment,
		LeaseStart: from, LeaseEnd: g.LeaseEnd, Frontier: from}
}

// The master is killed (kill -9). Holders assert their leases at the next master and go on. No
// acked record is granted again, no record is lost, and the token of a lost lease is refused.
func TestAfterAKillHoldersGoOnAndNothingAckedComesAgain(t *testing.T) {
	noLeaks(t)
	st := memstore.New()
	m := startMaster(t, st, nil)
	m.setUp(500)
	a := m.joined("a", 0)
	a.mustAck(a.grant()) // [0, 100)
	g := a.grant()       // [100, 200)
	if res, err := a.ack(g.Token, 150); err != nil || res.Code != headracev1.AckResult_DURABLE {
		t.Fatal(res, err)
	}
	b := m.joined("b", 1)
	gb := b.grant() // [200, 300)

	next := st.Reopen() // as after the process has died: the committed pairs are there
	m.stop()
	a.hangUp()
	b.hangUp()

	m = startMaster(t, next, nil)
	msg := hello("a", 7)
	msg.Joins = []*headracev1.Join{{Worker: 1, Rank: 0, Incarnation: 100, WorldSize: 8}}
	msg.Held = []*headracev1.Held{held(g, 150)}
	a, reply, err := m.connect(msg)
	m.must(err)
	if len(reply.Hello.Held) != 1 || reply.Hello.Held[0].Refused || reply.Hello.Held[0].Prefix != 150 || reply.Hello.Held[0].LeaseEnd != 200 {
		t.Fatalf("the asserted lease was answered %v, want it accepted with prefix 150 and end 200", reply)
	}
	if h := reply.Hello; h.Term != g.Token.Term+1 || h.Epoch != g.Token.Epoch || !proto.Equal(h.Held[0].Token, g.Token) {
		t.Fatalf("a restart must begin a new term, keep the epoch and keep the lease's token; got %v, the token was %v", h, g.Token)
	}
	if _, s, err := a.ask(); err != nil || s.GetState() != headracev1.Standing_RECOVERING {
		t.Fatalf("before all known agents are back, a request got %v (%v), want RECOVERING", s, err)
	}
	if res, err := a.ack(g.Token, 200); err != nil || res.Code != headracev1.AckResult_DURABLE {
		t.Fatalf("after the restart an ack with the kept token got %v (%v), want DURABLE", res, err)
	}

	// Agent b's trainer comes back and asserts no lease. So its rows go to agent a.
	msg = hello("b", 7)
	msg.Joins = []*headracev1.Join{{Worker: 1, Rank: 1, Incarnation: 101, WorldSize: 8}}
	b, _, err = m.connect(msg)
	m.must(err)
	if res, err := b.ack(gb.Token, gb.LeaseEnd); err != nil || res.Code != headracev1.AckResult_STALE {
		t.Fatalf("an ack with the token of a lost lease got %v (%v), want STALE", res, err)
	}
	seen := map[int64]bool{}
	a.next++ // the first grant answers the request that got RECOVERING
	for range 3 {
		var got *headracev1.Grant
		m.must(a.until(func(r *headracev1.MasterMessage) bool {
			for _, x := range r.Grants {
				got = x
			}
			return got != nil
		}))
		if seen[got.LeaseStart] || got.LeaseStart < 200 {
			t.Fatalf("granted %s, which was acked or granted before", span(got))
		}
		seen[got.LeaseStart] = true
		a.mustAck(got)
		a.send(&headracev1.AgentMessage{Requests: []*headracev1.LeaseRequest{{Id: a.next + 1, Worker: 1, Dataset: 1}}})
		a.next++
	}
	if !seen[gb.LeaseStart] {
		t.Fatalf("the rows of the trainer that asserted no lease were not granted again; granted were the leases at %v", seen)
	}
	d, err := m.datasets().Describe(t.Context(), &headracev1.DescribeRequest{Name: "clicks"})
	if err != nil || d.Counts.Acked != 500 || d.State != "done" {
		t.Fatalf("at the end the dataset is %v (%v), want done with 500 units acked", d, err)
	}
	a.hangUp()
	b.hangUp()
	m.must(m.stop())
}

// journal records what a trainer has applied, independently of any master.
type journal struct {
	acked   [totalUnits]bool // the ack was answered DURABLE
	applied [totalUnits]int  // how often the unit went into the model
}

const totalUnits = 1000

// train runs one trainer until the data ends or the master dies. It applies a lease and
// acks it in two halves. It asserts the leases that it holds at the next master.
func (j *journal) train(m *master, brought *headracev1.Grant, from int64) (holds *headracev1.Grant, at int64, err error) {
	msg := hello("a", 7)
	msg.Joins = []*headracev1.Join{{Worker: 1, Rank: 0, Incarnation: 100, WorldSize: 1}}
	if brought != nil {
		msg.Held = []*headracev1.Held{held(brought, from)}
	}
	a, reply, err := m.connect(msg)
	if err != nil {
		return brought, from, err
	}
	defer a.hangUp()
	if brought != nil {
		h := reply.Hello.Held[0]
		if h.Refused {
			return nil, 0, fmt.Errorf("the lease of the only holder was refused: %s", h.Reason)
		}
		if h.Prefix < from {
			return nil, 0, fmt.Errorf("the trainer was told that its lease is acked up to %d, but the next master knows only %d", from, h.Prefix)
		}
		for u := from; u < h.Prefix; u++ { // these acks are durable, but their answers were lost
			j.acked[u] = true
		}
		brought.Token, from = h.Token, h.Prefix
	}
	for g := brought; ; g = nil {
		if g == nil {
			var s *headracev1.Standing
			if g, s, err = a.ask(); err != nil {
				return nil, 0, err
			}
			for g == nil && s.State != headracev1.Standing_END {
				if g, s, err = a.answer(a.next); err != nil {
					return nil, 0, err
				}
			}
			if g == nil {
				return nil, 0, nil
			}
			from = g.LeaseStart
			for u := g.LeaseStart; u < g.LeaseEnd; u++ {
				j.applied[u]++
			}
		}
		for _, to := range []int64{(from + g.LeaseEnd) / 2, g.LeaseEnd} {
			if to <= from {
				continue
			}
			res, err := a.ack(g.Token, to)
			if err != nil {
				return g, from, err
			}
			if res.Code != headracev1.AckResult_DURABLE {
				return nil, 0, fmt.Errorf("ack up to %d: %v", to, res)
			}
			for u := from; u < to; u++ {
				j.acked[u] = true
			}
			from = to
		}
	}
}

func (m *master) tryApply() error {
	_, err := m.apply(clicks)
	if err == nil {
		err = m.list(totalUnits)
	}
	return err
}

// The master is killed at every commit of a whole job, once before and once after the commit is
// stored. The trainer asserts its leases at the next master. At the end every unit was applied
// exactly once, and all units are acked.
func TestAKillAtEveryCommitLosesAndRepeatsNothing(t *testing.T) {
	noLeaks(t)
	commits := crashAt(t, 0, false)
	if commits < 20 {
		t.Fatalf("the job made only %d commits, want at least 20 to kill the master at", commits)
	}
	for n := 1; n <= commits; n++ {
		for _, kept := range []bool{false, true} {
			crashAt(t, n, kept)
		}
	}
}

func crashAt(t *testing.T, n int, kept bool) (commits int) {
	t.Helper()
	what := fmt.Sprintf("killed at commit %d, batch kept: %v", n, kept)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	st := memstore.New()
	if kept {
		st.After = func(i int) error { return crash(i == n) }
	} else {
		st.Before = func(i int, _ []shardsvc.Put) error { return crash(i == n) }
	}
	var (
		j     journal
		holds *headracev1.Grant
		from  int64
		ready bool
	)
	for life := 1; ; life++ {
		if ctx.Err() != nil {
			t.Fatalf("%s: the job did not end within 2 minutes", what)
		}
		m := startMaster(t, st, func(c *serve.Config) { c.TTL = time.Minute })
		var err error
		if !ready {
			err = m.tryApply()
			ready = err == nil
		}
		if err == nil {
			holds, from, err = j.train(m, holds, from)
		}
		if err == nil {
			d, derr := m.datasets().Describe(t.Context(), &headracev1.DescribeRequest{Name: "clicks"})
			if derr != nil || d.Counts.Acked != totalUnits || d.State != "done" {
				t.Fatalf("%s: at the end the dataset is %v (%v), want done with %d units acked", what, d, derr, totalUnits)
			}
			if err := m.stop(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			break
		}
		if status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled && !errors.Is(err, serve.ErrStopped) {
			t.Fatalf("%s: life %d: %v", what, life, err)
		}
		st2 := st.Reopen()
		m.stop()
		st = st2
	}
	for u := range totalUnits {
		if j.applied[u] != 1 || !j.acked[u] {
			t.Fatalf("%s: unit %d was applied %d times, acked: %v; want once and true", what, u, j.applied[u], j.acked[u])
		}
	}
	return st.Commits()
}

func crash(now bool) error {
	if now {
		return memstore.ErrCrash
	}
	return nil
}
