package feed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/frame"
)

// resumeWords are the values of HELLO's resume_from.
var resumeWords = map[string]pb.Join_Resume{
	"": pb.Join_DEFAULT, frame.ResumeBound: pb.Join_BOUND, frame.ResumeAcked: pb.Join_ACKED, frame.ResumeStart: pb.Join_START,
}

// resumeWord is the word for one of them.
func resumeWord(r pb.Join_Resume) string {
	for word, is := range resumeWords {
		if is == r {
			return word
		}
	}
	return "" // a word of a newer master
}

var restoreModes = map[string]pb.Restore_Mode{"newest": pb.Restore_NEWEST, "exact": pb.Restore_EXACT, "start": pb.Restore_START}

var answerCodes = map[pb.CutReply_Code]string{
	pb.CutReply_OK: frame.AnswerOK, pb.CutReply_REFUSED: frame.AnswerRefused, pb.CutReply_FENCED: frame.AnswerFenced,
	pb.CutReply_TRY: frame.AnswerTry, pb.CutReply_TIMEOUT: frame.AnswerTimeout, pb.CutReply_AGAIN: frame.AnswerAgain,
}

// refusals are the words for why a restore is refused.
var refusals = map[pb.CutReply_Refusal]string{
	pb.CutReply_OTHERS_TRAIN: "others_train", pb.CutReply_GIVEN_UP: "given_up", pb.CutReply_UNVERIFIED: "unverified",
	pb.CutReply_TAKEN: "taken", pb.CutReply_SEGMENTS: "segments", pb.CutReply_CHANGED: "changed", pb.CutReply_APART: "apart",
}

// maxBody is the size of the largest cut that fits into an ANSWER with its other fields.
const maxBody = frame.MaxCall - 1<<20

// call passes a question about cuts on to the Desk. It does not look into the cut's
// body. A question that makes no sense is refused here.
func (t *trainer) call(payload []byte) error {
	v, err := frame.Decode[frame.Call](frame.TypeCall, payload)
	if err != nil {
		return err
	}
	if v.Call == frame.CallPersist {
		if v.Path == "" || v.Cut == 0 {
			t.out.send(frame.TypeAnswer, 0, frame.Answer{ID: v.ID, Code: frame.AnswerRefused, Reason: "persist names no slot, or no cut"})
			return nil
		}
		t.persist(&v)
		return nil
	}
	if v.Call == frame.CallStored {
		t.stored(&v)
		return nil
	}
	if v.Call == frame.CallPeers {
		t.peers(&v)
		return nil
	}
	c, err := callProto(t.number, &v)
	if err == nil {
		if a := t.srv.cfg.Desk.Do(&hold.Call{Call: c}); a.Invalid != "" {
			err = fmt.Errorf("%s", a.Invalid)
		}
	}
	if err != nil {
		t.out.send(frame.TypeAnswer, 0, frame.Answer{ID: v.ID, Code: frame.AnswerRefused, Reason: err.Error()})
	}
	return nil
}

func callProto(worker uint32, v *frame.Call) (*pb.CutCall, error) {
	c := &pb.CutCall{Worker: worker, Id: v.ID}
	if v.Path != "" && !manifest.Absolute(v.Path) {
		return nil, fmt.Errorf("path %q of the manifest is not absolute", v.Path)
	}
	if v.Cut == 0 && v.Call != frame.CallRestore {
		return nil, fmt.Errorf("%q names no cut", v.Call)
	}
	switch v.Call {
	case frame.CallAsk:
		switch {
		case v.Step < 0:
			return nil, fmt.Errorf("a cut at step %d", v.Step)
		case v.Carried != (v.Path == ""):
			return nil, fmt.Errorf("carried is %v, and the manifest's path %q: a carried cut has no manifest, any other one has", v.Carried, v.Path)
		}
		c.Call = &pb.CutCall_Ask{Ask: &pb.CutAsk{Cut: uint64(v.Cut), Step: v.Step, Carried: v.Carried, Path: v.Path, DeadlineMs: v.DeadlineMS, Exact: v.Exact, After: v.After, Memory: v.Memory}}
	case frame.CallBind:
		if v.Path == "" {
			return nil, fmt.Errorf("bind of cut %v names no manifest", v.Cut)
		}
		c.Call = &pb.CutCall_Bind{Bind: &pb.CutBind{Cut: uint64(v.Cut), Path: v.Path}}
	case frame.CallDrop:
		c.Call = &pb.CutCall_Drop{Drop: &pb.CutDrop{Cut: uint64(v.Cut), Reason: strings.ToValidUTF8(v.Reason, "\uFFFD")}}
	case frame.CallPause:
		c.Call = &pb.CutCall_Pause{Pause: &pb.CutPause{Cut: uint64(v.Cut), DeadlineMs: v.DeadlineMS}}
	case frame.CallRestore:
		mode, known := restoreModes[v.Mode]
		body := bytes.TrimSpace(v.Body)
		switch {
		case !known:
			return nil, fmt.Errorf("mode %q of restore: it is newest, exact or start", v.Mode)
		case len(body) > 0 && body[0] != '{' && !bytes.Equal(body, []byte("null")):
			return nil, fmt.Errorf("the cut to restore is not a JSON object")
		case bytes.Equal(body, []byte("null")):
			body = nil
		}
		r := &pb.Restore{Mode: mode, Body: bytes.Clone(body), Path: v.Path, After: v.After, Memory: v.Memory, WaitedMs: v.WaitedMS, Tells: v.Tells}
		for _, f := range v.Failed {
			r.Failed = append(r.Failed, uint64(f))
		}
		for _, f := range v.Readable {
			r.Readable = append(r.Readable, uint64(f))
		}
		c.Call = &pb.CutCall_Restore{Restore: r}
	default:
		return nil, fmt.Errorf("call %q: it is ask, pause, bind, drop, restore, persist, stored or peers", v.Call)
	}
	return c, nil
}

// yieldsPaused tells the Desk that the trainer yields nothing now.
func (t *trainer) yieldsPaused(payload []byte) error {
	v, err := frame.Decode[frame.YieldsPaused](frame.TypeYieldsPaused, payload)
	if err == nil {
		t.srv.cfg.Desk.Do(&hold.YieldsPaused{Worker: t.number, Cut: uint64(v.Cut)})
	}
	return err
}

// pauseYields tells the trainer to hand out no further batch, or to go on.
func (t *trainer) pauseYields(h hold.PauseYields) {
	t.out.send(frame.TypePauseYields, 0, frame.PauseYields{Cut: frame.CutID(h.Cut), On: h.On, Why: h.Why})
}

// answered gives the trainer the answer to its call.
func (t *trainer) answered(r *pb.CutReply) {
	a := frame.Answer{
		ID: r.Id, Code: answerCodes[r.Code], Reason: r.Reason, Cut: frame.CutID(r.Cut), Step: r.Step, Path: r.Path,
		Again: r.Again, AgainRecords: againOf(r.AgainTally), Epoch: r.Epoch, Refusal: refusals[r.Refusal],
	}
	switch {
	case a.Code == "":
		a.Code, a.Reason = frame.AnswerRefused, fmt.Sprintf("the master answered %v, which this agent does not know: %s", r.Code, r.Reason)
	case len(r.Body) > 0 && !json.Valid(r.Body):
		a.Code, a.Reason = frame.AnswerRefused, "the master's cut is not JSON: master and agent are of different versions"
	case len(r.Body) > maxBody:
		a.Code, a.Reason = frame.AnswerRefused, fmt.Sprintf("the cut has %d bytes, over the limit of %d", len(r.Body), maxBody)
	default:
		a.Body = r.Body
	}
	t.out.send(frame.TypeAnswer, 0, a)
}

// againOf is the count of records as a trainer is told it.
func againOf(t *pb.Tally) *frame.Again {
	if t == nil {
		return nil
	}
	return &frame.Again{Rows: t.Rows, Untold: t.Untold}
}
