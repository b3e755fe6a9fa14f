package serve

import (
	"reflect"
	"strings"
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"google.golang.org/protobuf/proto"
)

// A body becomes bytes when it is sent, alone in its message, in its turn.
func TestAnAnswerWithACutKeepsItsPlaceAmongReplies(t *testing.T) {
	o := newOutbox(1 << 20)
	e := &encoder{}
	texts := &bodies{}
	ack := func(prefix int64) {
		o.add(shardsvc.ReplyAck, e.encode(&shardsvc.Reply{Kind: shardsvc.ReplyAck, Prefix: prefix}, nil))
	}
	answer := func(id uint64, c *cut.Cut) {
		r := &shardsvc.Reply{Kind: shardsvc.ReplyCut, Worker: 1, Request: id, Cut: &shardsvc.CutAnswer{Cut: uint64(c.ID), Body: c}}
		o.addCut(&cutReply{wireReply(r), c, texts})
	}
	good := &cut.Cut{ID: 9, Job: "j", Model: "replicated", Rank: cut.Group, WorldSize: 2, Step: 130, Exact: true}
	bad := &cut.Cut{ID: 10, Job: "j", Model: "replicated", Rank: cut.Group, Step: -1}
	ack(1)
	answer(5, good)
	ack(2)
	if !o.publish() {
		t.Fatal("full")
	}
	answer(6, bad)
	o.batchEcho = 77
	if !o.publish() {
		t.Fatal("full")
	}
	var seen []string
	echo := int64(0)
	for _, m := range decodeAll(t, o) {
		for range m.Acks {
			seen = append(seen, "ack")
		}
		for _, r := range m.CutReplies {
			seen = append(seen, r.Code.String())
			if r.Id == 5 {
				c, err := cut.ParseJSON(r.Body)
				if err != nil || c.Step != 130 || r.Cut != 9 {
					t.Errorf("%+v %v", r, err)
				}
			} else if !strings.Contains(r.Reason, "can not write the cut down") || len(r.Body) > 0 {
				t.Errorf("%+v", r)
			}
		}
		echo = max(echo, m.Echo)
	}
	if strings.Join(seen, " ") != "ack OK ack REFUSED" || echo != 77 {
		t.Errorf("%v, echo %d", seen, echo)
	}
	if o.bytes != 0 {
		t.Errorf("%d bytes are left in an empty outbox", o.bytes)
	}
}

func TestAnOutboxIsFullOfCutsToo(t *testing.T) {
	o := newOutbox(3 * cutReplyBytes)
	for i := range 4 {
		o.addCut(&cutReply{})
		if o.publish() != (i < 3) {
			t.Fatalf("answer %d", i)
		}
	}
}

// A call whose cut can not be read is refused in its turn: the stream is that of
// all trainers of the agent.
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
	in := newInbound(&stream{})
	defer in.free()
	in.job, in.model = "j", "replicated"
	if err := in.decode(b); err != nil {
		t.Fatal(err)
	}
	want := []shardsvc.CutCall{
		{Worker: 1, ID: 1, Ask: &shardsvc.CutAsk{Cut: 7, Step: 3, Carried: true, Path: "/x", Deadline: 1500 * shardsvc.Millisecond, Exact: true}},
		{Worker: 1, ID: 2, Bind: &shardsvc.CutBind{Cut: 7, Path: "/x"}},
		{Worker: 1, ID: 3, Drop: &shardsvc.CutDrop{Cut: 7, Reason: "over"}},
		{Worker: 1, ID: 4, Restore: &shardsvc.RestoreCall{Mode: shardsvc.RestoreExact, Cut: whole, Path: "/p", Failed: []uint64{3}}},
		{Worker: 1, ID: 5, Restore: &shardsvc.RestoreCall{Mode: shardsvc.RestoreNewest, Path: "/p", Failed: []uint64{3}}},
	}
	if !reflect.DeepEqual(in.msg.Calls, want) {
		t.Errorf("calls:\n%+v\nwant:\n%+v", in.msg.Calls, want)
	}
	var refused []uint64
	for _, k := range in.badCalls {
		r := k.refuse(3)
		if r.To != 3 || r.Cut.Code != shardsvc.CutRefused || r.Reason == "" || r.Worker != 2 {
			t.Errorf("%+v", r)
		}
		refused = append(refused, r.Request)
	}
	if !reflect.DeepEqual(refused, []uint64{6, 7, 8}) {
		t.Errorf("refused: %v", refused)
	}
}
