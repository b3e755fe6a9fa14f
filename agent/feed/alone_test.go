package feed

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headrace/headrace/internal/frame"
)

// hands is a trainer whose records come one by one.
type hands struct {
	t       *testing.T
	st      *stream
	stepped uint32
}

func newHands(t *testing.T, srv *Server) *hands {
	return &hands{t: t, st: &stream{track: true, t: &trainer{srv: srv}}}
}

// take waits until the next record may leave, and returns how long that took.
func (h *hands) take() time.Duration {
	began := time.Now()
	for {
		again, ok := h.st.t.alone.mayLeave(h.st, true)
		if ok {
			h.st.t.alone.left(h.st, 1, true)
			return time.Since(began).Round(100 * time.Millisecond)
		}
		time.Sleep(time.Until(again) + time.Millisecond)
	}
}

func (h *hands) step(batches uint32) {
	h.stepped += batches
	h.st.t.alone.steppedTo(h.st, &frame.Step{Batches: batches, Through: h.stepped})
}

func (h *hands) wants(d, want time.Duration) {
	h.t.Helper()
	if d != want {
		h.t.Errorf("the next record waited %v, want %v", d, want)
	}
}

func TestTheNextRecordWaitsAsLongAsStepsTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHands(t, &Server{})
		h.wants(h.take(), 0)
		h.wants(h.take(), time.Second)
		time.Sleep(2 * time.Second)
		h.step(1) // the first record is stepped 3 s after it came
		h.wants(h.take(), 12*time.Second)
	})
}

// Two streams each have a record that must come alone, and both want to send it. One of them
// may. The other waits until the first record is stepped, or turns out not to be sent.
func TestOneOfTwoStreamsLetsARecordGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHands(t, &Server{})
		other := &stream{track: true, t: h.st.t, wakeSend: make(chan struct{}, 1)}
		a := &h.st.t.alone
		if _, ok := a.mayLeave(h.st, true); !ok {
			t.Fatal("nothing is in hand, but the record may not leave")
		}
		for _, single := range []bool{true, false} {
			if _, ok := a.mayLeave(other, single); ok {
				t.Errorf("single %v: the other stream may send while a record that comes alone is on its way", single)
			}
		}
		a.stays(h.st, true)
		select {
		case <-other.wakeSend:
		default:
			t.Error("the other stream is not woken when the record stays")
		}
		if _, ok := a.mayLeave(other, true); !ok {
			t.Error("nothing is on its way any more, but the record may not leave")
		}
		a.left(other, 1, true)
		h.wants(h.take(), time.Second)
	})
}

// The records that a closed stream had in hand are never stepped. So no record of another stream
// waits for them.
func TestAClosedStreamHasNothingInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHands(t, &Server{})
		other := &stream{track: true, t: h.st.t, wakeSend: make(chan struct{}, 1)}
		a := &h.st.t.alone
		if _, ok := a.mayLeave(other, false); !ok {
			t.Fatal("nothing is in hand, but a batch may not leave")
		}
		a.left(other, 3, false)
		a.closed(other)
		a.has(other, 1, false) // one more batch was on its way when the stream closed
		h.wants(h.take(), 0)
		h.step(1)
		h.wants(h.take(), 0)
	})
}

// Records of two streams take turns. A step takes 0.9 s, nearly as long as the wait of 1 s. The
// wait begins anew with each record that leaves, so two records are never in hand together.
func TestARecordWaitsForTheOneThatLeftAndNotForThoseBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHands(t, &Server{})
		other := &stream{track: true, t: h.st.t, wakeSend: make(chan struct{}, 1)}
		a := &h.st.t.alone
		h.wants(h.take(), 0)
		for range 3 {
			if _, ok := a.mayLeave(other, true); ok {
				t.Fatal("two records that come alone are in hand together")
			}
			time.Sleep(900 * time.Millisecond)
			h.step(1)
			h.wants(h.take(), 0)
		}
	})
}

// A trainer crashes in a step that is longer than the wait, with two records in hand. The next
// trainer gets the same records. It must get more time, or it crashes with two in hand as well.
func TestACrashInALongStepGivesTheNextTrainerMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &Server{}
		h := newHands(t, srv)
		h.take()
		h.wants(h.take(), time.Second)
		time.Sleep(500 * time.Millisecond)
		h.st.t.alone.crashed(&srv.patience)
		h = newHands(t, srv)
		h.take()
		h.wants(h.take(), 6*time.Second)
	})
}

// A program that takes two batches steps the first only when it has the second. A longer wait
// does not help, so it stays at a second.
func TestAProgramThatTakesTwoBatchesWaitsASecondEachTime(t *testing.T) {
	for name, step := range map[string]func(*hands){
		"at once":     func(h *hands) { h.step(2) },
		"one by one":  func(h *hands) { h.step(1); h.step(1) },
		"one is left": func(h *hands) { h.step(1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHands(t, &Server{})
				h.take()
				h.wants(h.take(), time.Second)
				for range 20 {
					time.Sleep(100 * time.Millisecond)
					step(h)
					if h.st.t.alone.unstepped == 0 {
						h.take()
					}
					h.wants(h.take(), time.Second)
				}
			})
		})
	}
}
