package serve

import (
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/wire"
	"google.golang.org/protobuf/proto"
)

// decodeAll decodes all messages of an outbox.
func decodeAll(t *testing.T, o *outbox) []*headracev1.MasterMessage {
	t.Helper()
	var all []*headracev1.MasterMessage
	for b := o.take(); b != nil; b = o.take() {
		m := &headracev1.MasterMessage{}
		if err := proto.Unmarshal(*b, m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func TestEveryReplyReachesTheWireWhole(t *testing.T) {
	enc := wire.Encoder{Job: "j", Model: "shared", Version: "v", TTL: 5000}
	tok := shardsvc.Token{Epoch: 1, Term: 2, Sequence: 1 << 40}
	wt := wire.TokenOf(tok)
	pieces := []shardsvc.Piece{{Segment: 9}, {OrderStart: 5, Segment: 3, Start: 10, End: 20, Locator: []byte{0, 1}, Name: "bad\xffname"}, {OrderStart: 15, Segment: 4, End: 5}}
	replies := []shardsvc.Reply{
		{Kind: shardsvc.ReplyHello, Term: 2, Epoch: 1},
		{Kind: shardsvc.ReplyHeld, Token: tok, Prefix: 7, End: 9},
		{Kind: shardsvc.ReplyHeld, Token: tok, Refused: true, Reason: "gone"},
		{Kind: shardsvc.ReplyJoin, Worker: 1, Generation: 3, Epoch: 1, Step: 12, Units: 100, Again: &cut.Tally{Rows: 9, Untold: 2}},
		{Kind: shardsvc.ReplyAck, Token: tok, Prefix: -1, Code: shardsvc.Invalid, Reason: "prefix"},
		{Kind: shardsvc.ReplySteal, Token: tok, At: 44},
		{Kind: shardsvc.ReplyRevoke, Token: tok, Reason: "deleted"},
		{Kind: shardsvc.ReplyEnd, Worker: 1, Reason: "stalled"},
		{Kind: shardsvc.ReplyFence, Worker: 1, Reason: "newer"},
		{Kind: shardsvc.ReplyGrant, Request: 8, Token: tok, Worker: 1, Dataset: 2, Partition: 3, Identity: "files:x", Pass: 1, Segment: 4, Start: 5, End: 20, Tries: 1, PieceLo: 1, PieceHi: 3},
		{Kind: shardsvc.ReplyStanding, Request: 9, Worker: 1, Dataset: 2, State: shardsvc.Drained, Reason: "out"},
	}
	o := newOutbox(1 << 20)
	for i := range replies {
		o.add(replies[i].Kind, enc.Encode(&replies[i], pieces))
	}
	o.batchEcho = 77
	if o.take() != nil {
		t.Fatal("a batch that is not published yet could be taken")
	}
	if !o.publish() {
		t.Fatal("full")
	}
	want := &headracev1.MasterMessage{
		Hello: &headracev1.HelloReply{Protocol: 1, Job: "j", Model: "shared", Term: 2, Epoch: 1, SessionTtlMs: 5000, Master: "v",
			Held: []*headracev1.HeldReply{{Was: wt, Token: wt, Prefix: 7, LeaseEnd: 9}, {Was: wt, Token: wt, Refused: true, Reason: "gone"}}},
		Echo: 77, Term: 2,
		Joins:     []*headracev1.JoinReply{{Worker: 1, Generation: 3, Epoch: 1, LastStep: 12, PendingAgain: 100, Again: &headracev1.Tally{Rows: 9, Untold: 2}}},
		Acks:      []*headracev1.AckResult{{Token: wt, Prefix: -1, Code: headracev1.AckResult_INVALID, Reason: "prefix"}},
		StealAsks: []*headracev1.StealAsk{{Token: wt, At: 44}},
		Revokes:   []*headracev1.Revoke{{Token: wt, Reason: "deleted"}},
		Ends:      []*headracev1.EndWorker{{Worker: 1, Reason: "stalled"}},
		Fences:    []*headracev1.Fence{{Worker: 1, Reason: "newer"}},
		Grants: []*headracev1.Grant{{Request: 8, Token: wt, Worker: 1, Dataset: 2, Partition: 3, Identity: "files:x", Pass: 1, Segment: 4,
			LeaseStart: 5, LeaseEnd: 20, Tries: 1, Pieces: []*headracev1.Piece{
				{OrderStart: 5, Segment: 3, Start: 10, End: 20, Locator: []byte{0, 1}, Name: "bad\uFFFDname"}, {OrderStart: 15, Segment: 4, End: 5}}}},
		Standings: []*headracev1.Standing{{Request: 9, Worker: 1, Dataset: 2, State: headracev1.Standing_DRAINED, Reason: "out"}},
	}
	got := decodeAll(t, o)
	if len(got) != 1 || !proto.Equal(got[0], want) {
		t.Fatalf("got %v\nwant %v", got, want)
	}
}

func TestNoReplyOvertakesTheGrantItIsAbout(t *testing.T) {
	enc := wire.Encoder{}
	kinds := func(all []*headracev1.MasterMessage) (s string) {
		for _, m := range all {
			for range m.Revokes {
				s += "r"
			}
			for range m.Acks {
				s += "a"
			}
			for range m.Grants {
				s += "g"
			}
			for range m.Standings {
				s += "s"
			}
			s += "|"
		}
		return s
	}
	for _, c := range []struct {
		order []shardsvc.ReplyKind
		want  string
	}{
		{[]shardsvc.ReplyKind{shardsvc.ReplyGrant, shardsvc.ReplyAck, shardsvc.ReplyGrant}, "agg|"},
		{[]shardsvc.ReplyKind{shardsvc.ReplyGrant, shardsvc.ReplyRevoke, shardsvc.ReplyGrant}, "g|rg|"},
		{[]shardsvc.ReplyKind{shardsvc.ReplyStanding, shardsvc.ReplyGrant, shardsvc.ReplyStanding}, "s|gs|"},
	} {
		for _, batches := range []bool{false, true} { // all replies in one batch, or each in a batch of its own
			o := newOutbox(1 << 20)
			for i, k := range c.order {
				o.add(k, enc.Encode(&shardsvc.Reply{Kind: k}, nil))
				if batches || i == len(c.order)-1 {
					o.publish()
				}
			}
			if got := kinds(decodeAll(t, o)); got != c.want {
				t.Errorf("%v: %s, want %s", c.order, got, c.want)
			}
		}
	}
}

func TestALargeAnswerIsCutIntoMessages(t *testing.T) {
	o := newOutbox(10 << 20)
	field := (&wire.Encoder{}).Encode(&shardsvc.Reply{Kind: shardsvc.ReplyAck, Reason: string(make([]byte, 300<<10))}, nil)
	for range 10 {
		o.add(shardsvc.ReplyAck, field)
	}
	o.publish()
	got := decodeAll(t, o)
	n := 0
	for _, m := range got {
		n += len(m.Acks)
	}
	if n != 10 || len(got) != 4 || o.bytes != 0 {
		t.Fatalf("%d acks in %d messages, %d bytes left", n, len(got), o.bytes)
	}
}

func TestAHelloReplyIsNeverCut(t *testing.T) {
	o := newOutbox(10 << 20)
	enc := &wire.Encoder{}
	o.add(shardsvc.ReplyHello, enc.Encode(&shardsvc.Reply{Kind: shardsvc.ReplyHello, Term: 1}, nil))
	for range 4 {
		o.add(shardsvc.ReplyHeld, enc.Encode(&shardsvc.Reply{Kind: shardsvc.ReplyHeld, Reason: string(make([]byte, 400<<10))}, nil))
	}
	o.publish()
	if got := decodeAll(t, o); len(got) != 1 || len(got[0].Hello.Held) != 4 {
		t.Fatalf("the hello reply came in %d messages, want 1", len(got))
	}
}

func TestAFullOutboxTakesNothingMore(t *testing.T) {
	o := newOutbox(100)
	put := func() bool {
		o.add(shardsvc.ReplyAck, make([]byte, 60))
		return o.publish()
	}
	if !put() || put() {
		t.Fatal("the outbox took more than its limit")
	}
	if b := o.take(); len(*b) != 60 || !put() {
		t.Fatal("replies that were taken out still count toward the limit")
	}
}
