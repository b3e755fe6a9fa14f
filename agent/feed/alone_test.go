package feed

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headrace/headrace/internal/frame"
)

// hands is a trainer that is given records one by one.
type hands struct {
	t       *testing.T
	st      *stream
	stepped uint32
}

func newHands(t *testing.T, srv *Server) *hands {
	return &hands{t: t, st: &stream{track: true, t: &trainer{srv: srv}}}
}

// take waits until the next record may leave, and says for how long.
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
		h.step(1) // 3 s after it came
		h.wants(h.take(), 12*time.Second)
	})
}

// Two streams have a record each that comes alone, and both may send at the same moment. One
// of them goes. The other one waits until that is stepped, or is not sent after all.
func TestOneOfTwoStreamsLetsARecordGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHands(t, &Server{})
		other := &stream{track: true, t: h.st.t, wakeSend: make(chan struct{}, 1)}
		a := &h.st.t.alone
		if _, ok := a.mayLeave(h.st, true); !ok {
			t.Fatal("nothing is in hand, and the record may not leave")
		}
		for _, single := range []bool{true, false} {
			if _, ok := a.mayLeave(other, single); ok {
				t.Errorf("single %v: it leaves beside a record that comes alone", single)
			}
		}
		a.stays(h.st, true)
		select {
		case <-other.wakeSend:
		default:
			t.Error("the other stream is not woken when the record stays")
		}
		if _, ok := a.mayLeave(other, true); !ok {
			t.Error("nothing is on its way any more, and the record may not leave")
		}
		a.left(other, 1, true)
		h.wants(h.take(), time.Second)
	})
}

// What a closed stream had in hand is never stepped. It keeps no record of another stream
// waiting.
func TestAClosedStreamHasNothingInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHands(t, &Server{})
		other := &stream{track: true, t: h.st.t, wakeSend: make(chan struct{}, 1)}
		a := &h.st.t.alone
		if _, ok := a.mayLeave(other, false); !ok {
			t.Fatal("nothing is in hand, and a batch may not leave")
		}
		a.left(other, 3, false)
		a.closed(other)
		a.has(other, 1, false) // one more was on its way
		h.wants(h.take(), 0)
		h.step(1)
		h.wants(h.take(), 0)
	})
}

// Records of two streams take turns, and a step takes nearly as long as the wait. The wait begins
// anew with each record that leaves, so the record of the other stream does not leave beside it.
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

// The records come to the next trainer in the same order. It must get more time, or it crashes
// with two records in hand too.
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

// Such a program steps only when it has the next batch, so a longer wait does not help.
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
					if h.st.t.alone.unstpd == 0 {
						h.take()
					}
					h.wants(h.take(), time.Second)
				}
			})
		})
	}
}
