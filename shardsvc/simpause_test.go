package shardsvc

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headrace/headrace/shardsvc/cut"
	"pgregory.net/rapid"
)

// One trainer of a shared model saves, and the yields of all are paused. When the saver copies
// the model, the records in it are exactly those of the cut.

type simPause struct {
	paused uint64 // the cut for which it was told to pause its yields, or 0
	saving uint64 // the cut for which it has paused the yields of all, or 0
	asks2  bool   // all have paused, so it may ask for the exact cut
}

func (s *sim) pauseTold(t *simTrainer, r Reply) {
	switch {
	case t == nil:
	case !r.Refused:
		t.paused = r.Cut.Cut
	case t.paused == r.Cut.Cut:
		t.paused = 0
	}
}

// somePause: a trainer pauses the yields of all, to save.
func (s *sim) somePause() {
	t := s.some()
	if s.model != Shared || t == nil || t.agent == nil || t.agent.session == 0 || !t.joined || t.saving != 0 && rapid.Bool().Draw(s.t, "keep") {
		return
	}
	s.nextCut++
	t.saving, t.asks2 = s.nextCut, false
	s.call(t, CutCall{Pause: &CutPause{s.nextCut, Time(rapid.IntRange(0, 20).Draw(s.t, "deadline")) * Second}})
}

// somePaused: a trainer steps the batches that it has, and says that it yields nothing.
func (s *sim) somePaused() {
	if t := s.some(); t != nil {
		s.sayPaused(t)
	}
}

func (s *sim) allPaused() {
	for _, t := range slices.Clone(s.trainers) {
		s.sayPaused(t)
	}
}

func (s *sim) sayPaused(t *simTrainer) {
	if t.paused == 0 || t.agent == nil || t.agent.session == 0 || !t.joined {
		return
	}
	t.step++
	m := &Message{Steps: []StepReport{{t.number, t.step}}, Yields: []YieldsPaused{{Worker: t.number, Cut: t.paused}}}
	for _, l := range t.leases {
		l.step = t.step
		m.Acks = append(m.Acks, s.ackOf(l, l.frontier, t.step))
	}
	s.send(t.agent, m)
}

// exactSave makes a whole exact save. Sometimes another event comes in between.
func (s *sim) exactSave() {
	s.team()
	for _, t := range slices.Clone(s.trainers) {
		s.request(t)
	}
	meanwhile := func() {
		switch rapid.IntRange(0, 12).Draw(s.t, "meanwhile") {
		case 0:
			s.someDelivery()
		case 1:
			s.someAck()
		case 2:
			s.someKill()
		case 3:
			s.someStarts()
		case 4:
			s.someReconnect()
		case 5: // a trainer does not obey, and its acks break the pause
			if t := s.some(); t != nil && slices.ContainsFunc(s.trainers, func(x *simTrainer) bool { return x.asks2 }) {
				t.paused = 0
				s.ackAll(t)
			}
		}
	}
	s.somePause()
	meanwhile()
	s.allPaused()
	meanwhile()
	s.someExactAsk()
}

// pauseAnswered: the saver copies the model, if all are paused.
func (s *sim) pauseAnswered(t *simTrainer, r Reply) bool {
	if t.saving == 0 || r.Cut.Cut != t.saving || r.Cut.Body != nil {
		return false
	}
	if r.Cut.Code != CutOK {
		t.saving = 0
		return r.Cut.Code != CutFenced
	}
	t.asks2 = true
	s.captured[t.saving] = s.book.Members(cut.Group, 1<<62)
	for _, x := range s.trainers {
		for _, l := range x.leases {
			if n := s.stepped(l); n < min(l.frontier, s.there(l)) {
				s.t.Fatalf("cut %d: the core says that all yields are paused, but rank %d inc %d has [%d, %d) of %s unstepped", t.saving, x.rank, x.inc, n, l.frontier, tok(l.token))
			}
		}
	}
	return true
}

// stepped returns how far a lease is durably acked.
func (s *sim) stepped(l *simLease) int64 {
	if g := s.granted[l.token]; g != nil {
		return max(l.settled, g.settled)
	}
	return l.settled
}

func (s *sim) someExactAsk() {
	i := slices.IndexFunc(s.trainers, func(t *simTrainer) bool { return t.asks2 })
	if i < 0 {
		return
	}
	t := s.trainers[i]
	if rapid.IntRange(0, 5).Draw(s.t, "give up") == 0 {
		drop := &CutDrop{t.saving, "its state cannot be copied"}
		t.saving, t.asks2 = 0, false // pauseAnswered must not take the answer to the drop for that to the pause
		s.call(t, CutCall{Drop: drop})
		return
	}
	k := &CutAsk{Cut: t.saving, Step: t.step, Exact: true, Path: fmt.Sprint("/", t.saving)}
	t.saving, t.asks2 = 0, false
	s.call(t, CutCall{Ask: k})
}

// exactAsCaptured checks that an exact cut has the records that were in the model when it
// was copied.
func (s *sim) exactAsCaptured(k *simCut, body *cut.Cut) {
	if s.model != Shared || !body.Exact {
		return
	}
	model, ok := s.captured[k.id]
	if !ok {
		s.t.Fatalf("cut %d says that it is exact, but no yields were paused for it", k.id)
	}
	if err := s.book.WithoutExcluded(k.set).Same(s.book.WithoutExcluded(model)); err != nil {
		s.t.Fatalf("cut %d says that it is exact, but it has other records (first) than the model (second): %v", k.id, err)
	}
	exactCuts++
}

// exactCuts counts the exact cuts of all worlds of this process.
var exactCuts int

// TestAnExactCutIsTheModelWhateverBreaks plays worlds of a shared model with many exact saves.
// docs/CUTS.md: "A cut of a `shared` model is exact when nothing changed the model between the
// cut's last ack and the capture of the state."
func TestAnExactCutIsTheModelWhateverBreaks(t *testing.T) {
	// A short run draws 20 worlds. If none of them has an exact cut, more are drawn.
	// Without a defect, this never takes 200 runs.
	before := exactCuts
	for runs := 0; runs == 0 || exactCuts == before; runs++ {
		if runs == 200 {
			t.Fatal("200 runs had no exact cut")
		}
		rapid.Check(t, func(rt *rapid.T) { worldOfExactCuts(rt, t) })
	}
	t.Logf("%d exact cuts", exactCuts-before)
}

func worldOfExactCuts(rt *rapid.T, t *testing.T) {
	s := newSimOf(rt, t, Shared)
	s.list(false)
	rt.Repeat(map[string]func(*rapid.T){
		"team":       func(*rapid.T) { s.team() },
		"all work":   func(*rapid.T) { s.allWork() },
		"request":    func(*rapid.T) { s.someRequest() },
		"deliver":    func(*rapid.T) { s.someDelivery() },
		"deliver2":   func(*rapid.T) { s.someDelivery() },
		"ack":        func(*rapid.T) { s.someAck() },
		"pause":      func(*rapid.T) { s.somePause() },
		"paused":     func(*rapid.T) { s.somePaused() },
		"all paused": func(*rapid.T) { s.allPaused() },
		"exact":      func(*rapid.T) { s.someExactAsk() },
		"save":       func(*rapid.T) { s.exactSave() },
		"save2":      func(*rapid.T) { s.exactSave() },
		"start":      func(*rapid.T) { s.someStarts() },
		"kill":       func(*rapid.T) { s.someKill() },
		"close":      func(*rapid.T) { s.someClose() },
		"unhook":     func(*rapid.T) { s.someUnhooked() },
		"break":      func(*rapid.T) { s.someBreak() },
		"reconnect":  func(*rapid.T) { s.someReconnect() },
		"agent":      func(*rapid.T) { s.someAgentDies() },
		"time":       func(*rapid.T) { s.pass(Time(rapid.IntRange(1, 4000).Draw(rt, "ms")) * Millisecond) },
		"list":       func(*rapid.T) { s.list(rapid.IntRange(0, 2).Draw(rt, "complete") == 0) },
		"crash":      func(*rapid.T) { s.crash() },
		"":           func(*rapid.T) {},
	})
	s.finish()
	if s.w.core.pause != nil {
		s.pass(pauseDeadline)
	}
	if s.w.core.pause != nil {
		rt.Fatalf("yields are still paused after the deadline of the pause")
	}
}
