package serve_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// A mark is below every record that is not settled, whichever records above it are acked.
func TestALowMarkStaysBelowWhatIsNotSettled(t *testing.T) {
	noLeaks(t)
	m := startMaster(t, memstore.New(), nil)
	m.setUp(250)
	mark := func(want int64) {
		t.Helper()
		marks, err := m.srv.CommitMarks(t.Context(), 1)
		if err != nil || len(marks) != 1 || marks[0].Partition != "files:clicks" || marks[0].Position.Offset != want {
			t.Errorf("marks %v (%v), want %d", marks, err, want)
		}
	}
	mark(0)
	a := m.joined("a", 0)
	first, second := a.grant(), a.grant()
	mark(0)
	a.mustAck(second)
	mark(0)
	a.mustAck(first)
	mark(200)
	a.mustAck(a.grant())
	mark(250)
	a.hangUp()
	if _, err := m.srv.CommitMarks(t.Context(), 9); !errors.Is(err, serve.ErrUnknown) {
		t.Errorf("the marks of an unknown dataset got %v, want ErrUnknown", err)
	}
	m.must(m.stop())
}

// The mark of a live input is the end of its settled records, even if that is ahead of the head
// that the master knows. A lease that ends ahead of head does not move it: the lease [1000, 1100)
// settles no record before its acks.
func TestALowMarkOfLiveInputIsWhatIsSettledAndNoMore(t *testing.T) {
	noLeaks(t)
	m := startMaster(t, memstore.New(), nil)
	_, err := m.apply("name: clicks\nkafka: {brokers: ['b:1'], topic: clicks, end: never}\ndecode: lines\nlease: {initial: 100, min: 1}\n")
	m.must(err, m.srv.Join(t.Context(), 1, []serve.NewPartition{
		{ID: "k:0", Segments: []sources.Segment{{Start: 1000, End: 1020, Locator: []byte("loc")}}},
		{ID: "k:1", Segments: []sources.Segment{{Start: 7, End: 7, Locator: []byte("loc")}}}}))
	mark := func(want ...int64) {
		t.Helper()
		marks, err := m.srv.CommitMarks(t.Context(), 1)
		if err != nil || len(marks) != 2 || marks[0].Position.Offset != want[0] || marks[1].Position.Offset != want[1] {
			t.Errorf("marks %v (%v), want %d", marks, err, want)
		}
	}
	mark(1000, 7)
	a := m.joined("a", 0)
	g := a.grant()
	if span(g) != "[1000, 1100)" {
		t.Fatalf("granted %s", span(g))
	}
	mark(1000, 7)
	if r, err := a.ack(g.Token, 1050); err != nil || r.Code != 0 {
		t.Fatal(r, err)
	}
	mark(1050, 7)
	m.must(m.srv.Heads(t.Context(), []serve.Head{{Partition: 1, End: 1090}}))
	mark(1050, 7)
	a.hangUp()
	m.must(m.stop())
}

// Guarantee 3: "Once acked, a record stays acked". Brokers and the landing delete by these
// marks, so an ack moves none of them before it is durable.
func TestNoMarkRestsOnAnAckThatIsNotDurable(t *testing.T) {
	type answer struct {
		marks []sources.Mark
		err   error
	}
	for name, read := range map[string]func(*serve.Server, context.Context) ([]sources.Mark, error){
		"commit": func(s *serve.Server, ctx context.Context) ([]sources.Mark, error) { return s.CommitMarks(ctx, 1) },
		"retain": func(s *serve.Server, ctx context.Context) ([]sources.Mark, error) { return s.RetainMarks(ctx, 1) },
	} {
		for _, fails := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				st := newGate()
				m := startMaster(t, st, nil)
				m.setUp(1000)
				a := m.joined("a", 0)
				g := a.grant()
				st.shut.Store(true)
				a.send(&headracev1.AgentMessage{Acks: []*headracev1.Ack{{Token: g.Token, Prefix: g.LeaseEnd, Worker: 1}}})
				synctest.Wait() // the committer has the ack and waits for the store
				answered := make(chan answer, 1)
				go func() {
					marks, err := read(m.srv, t.Context())
					answered <- answer{marks, err}
				}()
				synctest.Wait()
				if len(answered) > 0 {
					t.Fatalf("%s: marks %v before the ack was durable", name, (<-answered).marks)
				}
				st.fails.Store(fails)
				st.release()
				got := <-answered
				switch {
				case fails && got.err == nil:
					t.Errorf("%s: the marks are %v, though the ack was never stored", name, got.marks)
				case !fails && (got.err != nil || len(got.marks) != 1 || got.marks[0].Position.Offset != g.LeaseEnd):
					t.Errorf("%s: marks %v (%v), want %d", name, got.marks, got.err, g.LeaseEnd)
				}
				a.hangUp()
				if err := m.stop(); fails != errors.Is(err, syscall.EIO) {
					t.Errorf("%s: the master ended with %v", name, err)
				}
			})
		}
	}
}
