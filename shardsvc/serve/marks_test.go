package serve_test

import (
	"errors"
	"testing"

	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// A mark is below every record that is not settled, whatever lies acked above it.
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
		t.Errorf("marks of nothing: %v", err)
	}
	m.must(m.stop())
}

// The mark of a live input is the end of what is settled, also ahead of the known head. A
// lease may end ahead of head; its unread records are not settled by that.
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
