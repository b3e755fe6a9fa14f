package serve

import (
	"strings"
	"testing"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/wire"
)

// The body of a cut is encoded when the outbox is sent. Its answer keeps its place among the replies and gets a message of its own.
func TestAnAnswerWithACutKeepsItsPlaceAmongReplies(t *testing.T) {
	o := newOutbox(1 << 20)
	e := &wire.Encoder{}
	texts := &bodies{}
	ack := func(prefix int64) {
		o.add(shardsvc.ReplyAck, e.Encode(&shardsvc.Reply{Kind: shardsvc.ReplyAck, Prefix: prefix}, nil))
	}
	answer := func(id uint64, c *cut.Cut) {
		r := &shardsvc.Reply{Kind: shardsvc.ReplyCut, Worker: 1, Request: id, Cut: &shardsvc.CutAnswer{Cut: uint64(c.ID), Body: c}}
		o.addCut(&cutReply{wire.CutReply(r), c, texts})
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
			} else if !strings.Contains(r.Reason, "cannot write the cut down") || len(r.Body) > 0 {
				t.Errorf("the cut that cannot be encoded was answered %+v, want a refusal without a body", r)
			}
		}
		echo = max(echo, m.Echo)
	}
	if strings.Join(seen, " ") != "ack OK ack REFUSED" || echo != 77 {
		t.Errorf("sent were %v, echo %d; want ack OK ack REFUSED, echo 77", seen, echo)
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
			t.Fatalf("answer %d of 4: the outbox has room for 3, and publish said %v", i+1, i >= 3)
		}
	}
}
