package agent_test

import (
	"bytes"
	"strings"
	"testing"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/internal/proof/toymaster"
)

func (t *trainer) say(c frame.Call) error {
	return frame.WriteControl(t.control, frame.TypeCall, 0, 0, c)
}

func (t *trainer) answer() (a frame.Answer, err error) {
	m, err := t.expect(frame.TypeAnswer)
	if err != nil {
		return a, err
	}
	return frame.Decode[frame.Answer](m.Type, m.payload)
}

func TestACallCountsBehindTheStepsThatWereSaidBeforeIt(t *testing.T) {
	m, a, _ := setUp(t, 100)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true}))(t)
	check(t, s.credit(3))
	for step := range int64(3) {
		must(s.next(0))(t)
		check(t, s.step(step+1, 1))
	}
	check(t, tr.say(frame.Call{ID: 1, Call: frame.CallAsk, Cut: 77, Step: 3, Path: "/ck/3/manifest.json"}))
	got := must(tr.answer())(t)
	if got.ID != 1 || got.Code != frame.AnswerOK || got.Cut != 77 || got.Step != 3 || !bytes.Contains(got.Body, []byte(`"step":3`)) {
		t.Errorf("the ask was answered %+v with body %s, want OK and the cut at step 3", got, got.Body)
	}
	check(t, tr.say(frame.Call{ID: 2, Call: frame.CallBind, Cut: 77, Path: "/ck/3/manifest.json"}))
	if got := must(tr.answer())(t); got.ID != 2 || got.Code != frame.AnswerOK {
		t.Errorf("the bind was answered %+v, want OK", got)
	}
	m.do(func(toy *toymaster.Master) {
		if c := toy.Cut(77); c == nil || !c.Bound || len(c.Parts) == 0 {
			t.Errorf("the master has cut 77 as %+v, want it bound with records", c)
		}
		if steps := toy.Steps; len(steps) == 0 || steps[len(steps)-1].Step != 3 {
			t.Errorf("the master got the steps %v, want step 3 last", steps)
		}
	})
	check(t, tr.say(frame.Call{ID: 3, Call: frame.CallDrop, Cut: 77, Reason: "retention"}))
	must(tr.answer())(t)
	check(t, tr.say(frame.Call{ID: 4, Call: frame.CallBind, Cut: 77, Path: "/ck/3/manifest.json"}))
	if got := must(tr.answer())(t); got.Code != frame.AnswerRefused || !strings.Contains(got.Reason, "000000000000004d") {
		t.Errorf("the bind of a dropped cut was answered %+v, want a refusal that names the cut", got)
	}
	s.close()
	tr.bye()
}

func (t *trainer) told() (h frame.PauseYields, err error) {
	m, err := t.expect(frame.TypePauseYields)
	if err != nil {
		return h, err
	}
	return frame.Decode[frame.PauseYields](m.Type, m.payload)
}

// docs/CUTS.md: "YieldsPaused, after the acks".
func TestYieldsPausedReachesTheMasterAfterTheAcksOfWhatWasYielded(t *testing.T) {
	m, a, _ := setUp(t, 100)
	m.do(func(toy *toymaster.Master) { toy.Model = "shared" })
	saver := must(hello(a.socket, frame.Hello{WorldSize: 2}))(t)
	other := must(hello(a.socket, frame.Hello{WorldSize: 2, Rank: 1, Incarnation: 9}))(t)
	s := must(other.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true}))(t)
	check(t, s.credit(3))
	must(s.next(0))(t)
	check(t, saver.say(frame.Call{ID: 1, Call: frame.CallPause, Cut: 77}))
	for _, tr := range []*trainer{saver, other} {
		if h := must(tr.told())(t); !h.On || h.Cut != 77 || h.Why == "" {
			t.Errorf("the trainer was told %+v, want a pause for cut 77 with a reason", h)
		}
	}
	check(t, frame.WriteControl(saver.control, frame.TypeYieldsPaused, 0, 0, frame.YieldsPaused{Cut: 77}))
	check(t, s.step(1, 1))
	check(t, frame.WriteControl(other.control, frame.TypeYieldsPaused, 0, 0, frame.YieldsPaused{Cut: 77}))
	if got := must(saver.answer())(t); got.ID != 1 || got.Code != frame.AnswerOK || got.Cut != 77 {
		t.Errorf("the pause was answered %+v, want OK", got)
	}
	m.do(func(toy *toymaster.Master) {
		if toy.Settled() == 0 {
			t.Error("all have said that they yield nothing, but the batch is not acked")
		}
	})
	check(t, saver.say(frame.Call{ID: 2, Call: frame.CallAsk, Cut: 77, Carried: true, Exact: true}))
	if got := must(saver.answer())(t); got.ID != 2 || got.Code != frame.AnswerOK {
		t.Errorf("the exact ask was answered %+v, want OK", got)
	}
	for _, tr := range []*trainer{saver, other} {
		if h := must(tr.told())(t); h.On || h.Cut != 77 {
			t.Errorf("the trainer was told %+v, want the end of the pause", h)
		}
	}
	must(s.next(0))(t)
	check(t, s.step(2, 1))
	s.close()
	saver.bye()
	other.bye()
}

// An ask waits at the master for other ranks. If the master restarts meanwhile, the ask is sent
// again and answered once.
func TestACallOutlivesItsMaster(t *testing.T) {
	m, a, _ := setUp(t, 10)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true}))(t)
	check(t, tr.say(frame.Call{ID: 1, Call: frame.CallAsk, Cut: 5, Step: 9, Carried: true}))
	m.until("the call", func(toy *toymaster.Master) bool { return len(toy.Calls) == 1 })
	m.restart()
	m.until("the call again", func(toy *toymaster.Master) bool { return len(toy.Calls) == 2 })
	check(t, s.step(9, 0))
	if got := must(tr.answer())(t); got.ID != 1 || got.Code != frame.AnswerOK || got.Step != 9 {
		t.Errorf("the ask was answered %+v, want OK at step 9", got)
	}
	s.close()
	tr.bye()
}

func TestAJobWithAPastTellsItsTrainersToRestoreFirst(t *testing.T) {
	m, a, _ := setUp(t, 10)
	m.do(func(toy *toymaster.Master) { toy.Restore = true })
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1, ResumeFrom: frame.ResumeBound}))(t)
	m.do(func(toy *toymaster.Master) {
		if w := toy.Workers(); len(w) != 1 || w[0].Resume != pb.Join_BOUND {
			t.Errorf("the master knows the workers %v, want one that resumes from bound", w)
		}
	})
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true}))(t)
	check(t, s.credit(1))
	msg := must(tr.expect(frame.TypeState))(t)
	if got := must(frame.Decode[frame.State](msg.Type, msg.payload))(t); got.State != frame.StateRestore || got.Reason == "" {
		t.Errorf("the trainer was told the state %+v, want restore with a reason", got)
	}
	check(t, tr.say(frame.Call{ID: 1, Call: frame.CallRestore, Mode: "newest", Body: []byte(`{"step":4}`), Path: "/ck/4/manifest.json", Failed: []frame.CutID{9}}))
	if got := must(tr.answer())(t); got.Code != frame.AnswerOK || got.Step != 4 || got.Epoch != 1 || got.Path != "/ck/4/manifest.json" {
		t.Errorf("the restore was answered %+v, want OK at step 4", got)
	}
	m.do(func(toy *toymaster.Master) {
		if r := toy.Calls[0].GetRestore(); len(r.GetFailed()) != 1 || r.GetFailed()[0] != 9 {
			t.Errorf("the master got the restore %v, want cut 9 among the failed ones", r)
		}
	})
	must(s.next(0))(t)
	check(t, s.step(5, 1))
	s.close()
	tr.bye()
}

func TestACallThatMakesNoSenseIsAnsweredByTheAgent(t *testing.T) {
	m, a, _ := setUp(t, 10)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	for i, c := range []struct {
		call frame.Call
		why  string
	}{
		{frame.Call{Call: "guess", Cut: 1}, `"guess"`},
		{frame.Call{Call: frame.CallAsk, Cut: 1, Step: 1, Path: "ck/manifest.json"}, "not absolute"},
		{frame.Call{Call: frame.CallAsk, Step: 1, Path: "/ck"}, "names no cut"},
		{frame.Call{Call: frame.CallAsk, Cut: 1, Step: -1, Carried: true}, "step -1"},
		{frame.Call{Call: frame.CallAsk, Cut: 1, Step: 1}, "carried is false"},
		{frame.Call{Call: frame.CallBind, Cut: 1}, "no manifest"},
		{frame.Call{Call: frame.CallRestore, Mode: "some"}, `"some"`},
		{frame.Call{Call: frame.CallRestore, Mode: "newest", Body: []byte(`[1]`)}, "not a JSON object"},
	} {
		c.call.ID = uint64(i + 1)
		check(t, tr.say(c.call))
		got := must(tr.answer())(t)
		if got.ID != c.call.ID || got.Code != frame.AnswerRefused || !strings.Contains(got.Reason, c.why) {
			t.Errorf("the call %+v was answered %+v, want a refusal that says %s", c.call, got, c.why)
		}
	}
	m.do(func(toy *toymaster.Master) {
		if len(toy.Calls) != 0 {
			t.Errorf("the master was asked %v", toy.Calls)
		}
	})
	tr.bye()
	_, err := hello(a.socket, frame.Hello{WorldSize: 1, ResumeFrom: "sometimes"})
	wantError(t, err, frame.CodeInvalid, `"sometimes"`, "bound, acked or start")
}

// A cut may be larger than all other control messages, and larger than the messages that may wait
// for a trainer that does not read.
func TestALargeCutArrivesWhole(t *testing.T) {
	m, a, _ := setUp(t, 10)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	big := []byte(`{"step":1,"pad":"` + strings.Repeat("x", 20<<20) + `"}`)
	check(t, tr.say(frame.Call{ID: 1, Call: frame.CallRestore, Mode: "exact", Body: big, Path: "/ck/1/manifest.json"}))
	must(tr.answer())(t)
	m.do(func(toy *toymaster.Master) {
		if got := toy.Calls[0].GetRestore().GetBody(); !bytes.Equal(got, big) {
			t.Errorf("%d of %d bytes of the cut reached the master", len(got), len(big))
		}
	})
	check(t, tr.say(frame.Call{ID: 2, Call: frame.CallAsk, Cut: 7, Step: 1, Carried: true}))
	m.until("the call", func(toy *toymaster.Master) bool { return len(toy.Calls) == 2 })
	m.do(func(toy *toymaster.Master) {
		toy.Tell(&pb.MasterMessage{CutReplies: []*pb.CutReply{{Worker: toy.Workers()[0].Worker, Id: 2, Cut: 7, Body: big}}})
	})
	if got := must(tr.answer())(t); got.ID != 2 || !bytes.Equal(got.Body, big) {
		t.Errorf("the answer to call %d has %d bytes of %d", got.ID, len(got.Body), len(big))
	}
	tr.bye()
}

func TestAFencedTrainersCallIsAnsweredWithoutAMaster(t *testing.T) {
	m, a, _ := setUp(t, 10)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	m.do(func(toy *toymaster.Master) {
		toy.Tell(&pb.MasterMessage{Fences: []*pb.Fence{{Worker: toy.Workers()[0].Worker, Reason: "a new generation"}}})
	})
	must(tr.expect(frame.TypeFenced))(t)
	m.stop()
	check(t, tr.say(frame.Call{ID: 1, Call: frame.CallAsk, Cut: 5, Step: 1, Carried: true}))
	if got := must(tr.answer())(t); got.Code != frame.AnswerFenced || got.Reason != "a new generation" {
		t.Errorf("the call of a fenced trainer was answered %+v", got)
	}
	tr.bye()
}
