package sim

import (
	"fmt"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Exact saves of a shared model: the yields of all trainers are paused while the saver copies the model from
// its server. The simulation has no process for that server.

// Messages between agent and trainer about it.
type (
	pauseOn   struct{ h hold.PauseYields }
	nowPaused struct{ cut uint64 }
)

// told: the trainer must yield no further batch, or may go on.
func (t *trainer) told(h hold.PauseYields) {
	switch {
	case h.On:
		t.w.tracef(t.name, "is paused for cut %x: %s", h.Cut, h.Why)
		t.paused, t.saidPaused = h.Cut, false
	case t.paused == h.Cut:
		t.w.tracef(t.name, "goes on after cut %x: %s", h.Cut, h.Why)
		t.paused = 0
	}
	if t.paused != 0 && !t.opened { // it has nothing in hand, and the pause must not wait until it has restored
		t.sayPaused()
	}
	t.work()
}

// sayPaused says that all yielded batches are stepped. It is sent after those steps.
func (t *trainer) sayPaused() {
	if t.saidPaused || t.l == nil || !t.welcomed {
		return
	}
	t.flush()
	t.saidPaused = true
	t.w.tracef(t.name, "yields nothing, for cut %x", t.paused)
	t.l.send(0, nowPaused{t.paused})
}

// saveExactly copies the model when all yields are paused, and then asks for the cut.
func (t *trainer) saveExactly() {
	w := t.w
	t.saving = true
	id := w.r.Uint64() | 1
	path := fmt.Sprintf("/ckpt/%d-%x", t.step, id)
	w.tracef(t.name, "saves step %d exactly: cut %x", t.step, id)
	failed := func(r *pb.CutReply) {
		w.tracef(t.name, "exact cut %x: %v %s", id, r.Code, r.Reason)
		t.saving = false
	}
	h := &pb.CutPause{Cut: id, DeadlineMs: uint32(w.of(200, 20000))}
	t.call(&pb.CutCall{Call: &pb.CutCall_Pause{Pause: h}}, func(r *pb.CutReply) {
		if r.Code != pb.CutReply_OK {
			failed(r)
			return
		}
		w.tracef(t.name, "all yields are paused for cut %x", id)
		t.after(w.time(0, 200*millisecond), func() {
			if w.oneIn(8) { // copying the state fails
				t.call(&pb.CutCall{Call: &pb.CutCall_Drop{Drop: &pb.CutDrop{Cut: id, Reason: "no room"}}}, failed)
				return
			}
			copied, at := w.model.clone(), w.now
			t.after(w.time(0, 200*millisecond), func() {
				ask := &pb.CutAsk{Cut: id, Step: t.step, Path: path, Exact: true, After: t.look()}
				t.call(&pb.CutCall{Call: &pb.CutCall_Ask{Ask: ask}}, func(r *pb.CutReply) {
					if r.Code != pb.CutReply_OK {
						failed(r)
						return
					}
					cut := w.body(r.Body)
					t.order = max(t.order, cut.Order)
					w.seen.exact++
					w.books.checkExact(t, cut, copied, at)
					s := &saving{t: t, copied: copied, writes: true, until: w.now + w.time(second, 20*second)}
					s.m = &manifest{path: r.Path, cut: cut, model: copied, pinned: w.oneIn(20)}
					s.write()
				})
			})
		})
	})
}

// checkExact checks that the model that was copied at `at` is the cut. It may also hold records from
// trainers that were killed or given up, whose step had not arrived.
func (b *books) checkExact(t *trainer, body *cut.Cut, copied *model, at Time) {
	w := b.w
	if !body.Exact {
		w.fail("%s: cut %x was asked for as exact, and says that it is not", t.name, uint64(body.ID))
	}
	in := w.members(body)
	b.checkList(t, body)
	for r := range w.records {
		switch n := copied.times[r]; {
		case in[r] && n == 0:
			w.fail("%s: exact cut %x says that %s is in the model, and it is not", t.name, uint64(body.ID), w.input.where(int32(r)))
		case in[r] || n == 0:
		case b.excused(int32(r), at):
			w.seen.unstepped += int(n)
		default:
			w.fail("%s: exact cut %x does not have %s, which a trainer that still runs has put into the model", t.name, uint64(body.ID), w.input.where(int32(r)))
		}
	}
}

// excused: no trainer that runs, and was not given up, had put r into the model at `at`.
func (b *books) excused(r int32, at Time) bool {
	for i := range b.recs[r] {
		if e := &b.recs[r][i]; e.is != inHand && e.at <= at && e.t.alive && !e.t.fenced && !b.lostTouch(e) {
			return false
		}
	}
	return true
}
