package agent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/agent"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/internal/proof/toymaster"
)

// value of a metric, summed over its labels.
func value(t *testing.T, r *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := r.Gather()
	check(t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
			return sum
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// Guarantee 9: buffers are bounded.
func TestBuffersAreBoundedWhateverTheInputAndThePace(t *testing.T) {
	root, begins := input(t, 5000, 5000)
	m := newMaster(t, "private", fmt.Sprintf(lines, root), root)
	r := prometheus.NewRegistry()
	const limit = 20000
	a := start(t, m, socketIn(t), func(c *agent.Config) { c.Registerer, c.BufferBytes = r, limit })
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true}))(t)
	check(t, s.credit(2))
	most, rows := 0.0, 0
	for n := int64(1); ; n++ {
		b, err := s.next(0)
		if err == errEnd {
			break
		}
		check(t, err)
		rows += len(b.offsets)
		most = max(most, value(t, r, "headrace_agent_buffer_bytes"))
		check(t, s.step(n, 1))
		check(t, s.credit(1))
	}
	if rows != len(begins) {
		t.Errorf("%d of %d rows came", rows, len(begins))
	}
	if most > 2*limit { // the frame that exceeds the limit is still made
		t.Errorf("%v bytes were buffered, the limit is %d", most, limit)
	}
	check(t, frame.WriteControl(tr.control, frame.TypeStats, 1, 0, frame.Stats{WaitSeconds: 1.5, StepSeconds: 2.5, Rows: 10}))
	check(t, frame.WriteControl(tr.control, frame.TypeStats, 1, 0, frame.Stats{WaitSeconds: 2, StepSeconds: 3, Rows: 20}))
	s.close()
	tr.bye()
	if w, st := value(t, r, "headrace_trainer_wait_seconds_total"), value(t, r, "headrace_trainer_step_seconds_total"); w != 2 || st != 3 {
		t.Errorf("the metrics say %v s of waiting and %v s of steps, want 2 and 3", w, st)
	}
	if left := value(t, r, "headrace_agent_buffer_bytes"); left != 0 {
		t.Errorf("headrace_agent_buffer_bytes is %v after the stream was closed, want 0", left)
	}
}

func TestAnIdleRankReportsItsStep(t *testing.T) {
	m, a, _ := setUp(t, 10)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true}))(t)
	check(t, s.step(7, 0))
	m.until("the step", func(toy *toymaster.Master) bool { return len(toy.Steps) == 1 && toy.Steps[0].Step == 7 })
	check(t, s.step(6, 0))
	_, err := tr.expect(frame.TypeFenced)
	wantError(t, err, frame.CodeInvalid, "step 6", "step 7")
	s.close()
	tr.bye()
}

func TestAWaitingTrainerIsToldWhatItWaitsFor(t *testing.T) {
	m, a, _ := setUp(t, 10)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true}))(t)
	check(t, s.credit(4))
	must(s.next(0))(t) // it has all records, and none is stepped
	state := func() frame.State {
		msg := must(tr.expect(frame.TypeState))(t)
		return must(frame.Decode[frame.State](msg.Type, msg.payload))(t)
	}
	if got := state(); got.State != frame.StateDrained {
		t.Errorf("%+v", got)
	}
	m.stop()
	if got := state(); got.State != frame.StateMasterLost || got.Reason == "" {
		t.Errorf("%+v", got)
	}
	m.serve(m.addr)
	for state().State != frame.StateDrained { // the trainer is told of failed attempts too
	}
	s.close()
	tr.bye()
}

// Files with different header lines have a decoder each, and each decoder counts its own errors.
func TestReplacedValuesOfFilesWithDifferentHeadersAreAllCounted(t *testing.T) {
	root := t.TempDir()
	check(t, os.WriteFile(filepath.Join(root, "a.csv"), []byte("id,word\nx,a\ny,b\nz,c\n"), 0o644))
	check(t, os.WriteFile(filepath.Join(root, "b.csv"), []byte("word,id\na,x\nb,y\n"), 0o644))
	m := newMaster(t, "private", fmt.Sprintf(`
name: lines
files: {root: %s}
decode:
  format: csv
  header: true
  on_error: default
  columns:
    - {name: id, path: id, dtype: int64, default: 7}
`, root), root)
	r := prometheus.NewRegistry()
	a := start(t, m, socketIn(t), func(c *agent.Config) { c.Registerer = r })
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 1, Track: true}))(t)
	check(t, s.credit(10))
	for n := int64(1); ; n++ {
		if _, err := s.next(0); err == errEnd {
			break
		} else {
			check(t, err)
		}
		check(t, s.step(n, 1))
	}
	s.close()
	tr.bye()
	if n := value(t, r, "headrace_decode_errors_total"); n != 5 {
		t.Errorf("%v errors are counted, want 5", n)
	}
}

// A stream may lose its data connection and get a new one. Values that were counted on the old
// one are not counted again.
func TestReplacedValuesAreCountedOnceAlsoByAnotherConnection(t *testing.T) {
	root := t.TempDir()
	check(t, os.WriteFile(filepath.Join(root, "a.csv"), []byte("x\n"+strings.Repeat("1\n", 1<<18)), 0o644))
	m := newMaster(t, "private", fmt.Sprintf(`
name: lines
files: {root: %s}
lease: {initial: 64KiB, min: 64KiB, max: 64KiB}
decode:
  format: csv
  on_error: default
  columns:
    - {name: id, path: 0, dtype: int64, default: 7}
`, root), root)
	r := prometheus.NewRegistry()
	a := start(t, m, socketIn(t), func(c *agent.Config) { c.Registerer = r })
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 1000, Track: true}))(t)
	step := int64(0)
	take := func() error {
		if _, err := s.next(0); err != nil {
			return err
		}
		step++
		return s.step(step, 1)
	}
	check(t, s.credit(60))
	for range 60 { // more than the first lease
		check(t, take())
	}
	for {
		_ = s.data.Close()
		check(t, s.attach())
		_ = s.credit(5000) // fails if the agent has refused the connection and closed it; the refusal can still be read
		err := take()
		if e, ok := errors.AsType[*frame.Error](err); ok && strings.Contains(e.Message, "already") {
			continue // the agent has not seen yet that the first connection ended
		}
		check(t, err)
		break
	}
	for {
		err := take()
		if err == errEnd {
			break
		}
		check(t, err)
	}
	s.close()
	tr.bye()
	if n := value(t, r, "headrace_decode_errors_total"); n != 1 {
		t.Errorf("%v errors are counted, want 1", n)
	}
}
