package serve_test

import (
	"errors"
	"testing"

	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/serve"
)

// A mark is below every record that is not settled, whatever lies acked above it.
func TestALowMarkStaysBelowWhatIsNotSettled(t *testing.T) {
	noLeaks(t)
	m := startMaster(t, memstore.New(), nil)
	m.setUp(250)
	mark := func(want int64) {
		t.Helper()
		marks, err := m.srv.LowMarks(t.Context(), 1)
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
	if _, err := m.srv.LowMarks(t.Context(), 9); !errors.Is(err, serve.ErrUnknown) {
		t.Errorf("marks of nothing: %v", err)
	}
	m.must(m.stop())
}
