package feed

import (
	"encoding/json"
	"testing"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/frame"
)

// FuzzCall: any bytes that a trainer sends as CALL are refused, or become a call with the same
// content.
func FuzzCall(f *testing.F) {
	for _, seed := range []string{
		`{"id":1,"call":"ask","cut":"00000000000000ff","step":5,"path":"/ck/m.json","deadline_ms":100}`,
		`{"id":2,"call":"ask","cut":"00000000000000ff","carried":true,"exact":true}`,
		`{"id":3,"call":"bind","cut":"ffffffffffffffff","path":"/ck/m.json"}`,
		`{"id":4,"call":"drop","cut":"0000000000000001","reason":"gone"}`,
		`{"id":5,"call":"restore","mode":"newest","body":{"step":1},"path":"/x","failed":["0000000000000002"]}`,
		`{"id":6,"call":"restore","mode":"start","body":null}`,
		`{"id":7,"call":"restore","mode":"exact","body":[]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		v, err := frame.Decode[frame.Call](frame.TypeCall, payload)
		if err != nil {
			return
		}
		c, err := callProto(7, &v)
		if err != nil {
			return
		}
		if c.Worker != 7 || c.Id != v.ID {
			t.Fatalf("%s became call %d of worker %d, want call %d of worker 7", payload, c.Id, c.Worker, v.ID)
		}
		if r := c.GetRestore(); r != nil {
			if len(r.Body) > 0 && (r.Body[0] != '{' || !json.Valid(r.Body)) {
				t.Fatalf("%s became a restore with the body %s, want a JSON object or none", payload, r.Body)
			}
			return
		}
		for _, cut := range []uint64{c.GetAsk().GetCut(), c.GetBind().GetCut(), c.GetDrop().GetCut()} {
			if cut != 0 && cut != uint64(v.Cut) {
				t.Fatalf("%s became a call about cut %016x, want %016x", payload, cut, uint64(v.Cut))
			}
		}
		if c.GetAsk().GetCut() == 0 && c.GetBind().GetCut() == 0 && c.GetDrop().GetCut() == 0 {
			t.Fatalf("%s became a call that names no cut", payload)
		}
	})
}

func TestEachCodeOfTheMasterHasAWord(t *testing.T) {
	for code := range pb.CutReply_Code_name {
		if answerCodes[pb.CutReply_Code(code)] == "" {
			t.Errorf("the code %v has no word in an answer", pb.CutReply_Code(code))
		}
	}
	for mode := range pb.Join_Resume_name {
		found := false
		for _, m := range resumeWords {
			found = found || m == pb.Join_Resume(mode)
		}
		if !found {
			t.Errorf("%v has no word in HELLO", pb.Join_Resume(mode))
		}
	}
}
