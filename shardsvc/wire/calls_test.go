package wire

import (
	"reflect"
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"google.golang.org/protobuf/proto"
)

// A call whose cut cannot be read is refused when its turn comes. It does not end the stream,
// because all trainers of the agent share it.
func TestACallThatCanNotBeReadIsRefusedAndNoCallIsMissed(t *testing.T) {
	whole := &cut.Cut{ID: 4, Job: "j", Model: "replicated", Rank: cut.Group, WorldSize: 1, Exact: true, Datasets: []cut.Dataset{}}
	text, err := whole.EncodeJSON()
	if err != nil {
		t.Fatal(err)
	}
	restore := func(body []byte, mode headracev1.Restore_Mode) *headracev1.CutCall_Restore {
		return &headracev1.CutCall_Restore{Restore: &headracev1.Restore{Mode: mode, Body: body, Path: "/p", Failed: []uint64{3}}}
	}
	b, err := proto.Marshal(&headracev1.AgentMessage{Calls: []*headracev1.CutCall{
		{Worker: 1, Id: 1, Call: &headracev1.CutCall_Ask{Ask: &headracev1.CutAsk{Cut: 7, Step: 3, Carried: true, Path: "/x", DeadlineMs: 1500, Exact: true}}},
		{Worker: 1, Id: 2, Call: &headracev1.CutCall_Bind{Bind: &headracev1.CutBind{Cut: 7, Path: "/x"}}},
		{Worker: 1, Id: 3, Call: &headracev1.CutCall_Drop{Drop: &headracev1.CutDrop{Cut: 7, Reason: "over"}}},
		{Worker: 1, Id: 4, Call: restore(text, headracev1.Restore_EXACT)},
		{Worker: 1, Id: 5, Call: restore(nil, headracev1.Restore_NEWEST)},
		{Worker: 2, Id: 6, Call: restore(text[:20], headracev1.Restore_NEWEST)},
		{Worker: 2, Id: 7, Call: restore(nil, 9)},
		{Worker: 2, Id: 8},
	}})
	if err != nil {
		t.Fatal(err)
	}
	in := &Message{}
	if err := (&Decoder{Job: "j", Model: "replicated"}).Decode(b, in); err != nil {
		t.Fatal(err)
	}
	want := []shardsvc.CutCall{
		{Worker: 1, ID: 1, Ask: &shardsvc.CutAsk{Cut: 7, Step: 3, Carried: true, Path: "/x", Deadline: 1500 * shardsvc.Millisecond, Exact: true}},
		{Worker: 1, ID: 2, Bind: &shardsvc.CutBind{Cut: 7, Path: "/x"}},
		{Worker: 1, ID: 3, Drop: &shardsvc.CutDrop{Cut: 7, Reason: "over"}},
		{Worker: 1, ID: 4, Restore: &shardsvc.RestoreCall{Mode: shardsvc.RestoreExact, Cut: whole, Path: "/p", Failed: []uint64{3}}},
		{Worker: 1, ID: 5, Restore: &shardsvc.RestoreCall{Mode: shardsvc.RestoreNewest, Path: "/p", Failed: []uint64{3}}},
	}
	if !reflect.DeepEqual(in.Event.Calls, want) {
		t.Errorf("calls:\n%+v\nwant:\n%+v", in.Event.Calls, want)
	}
	var refused []uint64
	for _, k := range in.Refusals {
		r := k.Reply(3)
		if r.To != 3 || r.Cut.Code != shardsvc.CutRefused || r.Reason == "" || r.Worker != 2 {
			t.Errorf("%+v", r)
		}
		refused = append(refused, r.Request)
	}
	if !reflect.DeepEqual(refused, []uint64{6, 7, 8}) {
		t.Errorf("refused: %v", refused)
	}
}

func TestRefusalsHaveTheNumbersOfTheWire(t *testing.T) {
	for why, name := range map[shardsvc.Refusal]headracev1.CutReply_Refusal{
		shardsvc.RefusedOther: headracev1.CutReply_OTHER, shardsvc.RefusedOthers: headracev1.CutReply_OTHERS_TRAIN,
		shardsvc.RefusedGivenUp: headracev1.CutReply_GIVEN_UP, shardsvc.RefusedUnverified: headracev1.CutReply_UNVERIFIED,
		shardsvc.RefusedTaken: headracev1.CutReply_TAKEN, shardsvc.RefusedSegments: headracev1.CutReply_SEGMENTS,
		shardsvc.RefusedChanged: headracev1.CutReply_CHANGED, shardsvc.RefusedApart: headracev1.CutReply_APART,
	} {
		if got := CutReply(&shardsvc.Reply{Cut: &shardsvc.CutAnswer{Why: why}}).Refusal; got != name {
			t.Errorf("refusal %d is %v on the wire, want %v", why, got, name)
		}
	}
}
