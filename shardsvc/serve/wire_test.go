package serve

import (
	"math"
	"reflect"
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// slow is what decode must make of a message: generated code and plain copies.
func slow(m *headracev1.AgentMessage) (in inbound) {
	in.sentAt = m.SentAt
	if h := m.Hello; h != nil {
		in.hello = shardsvc.Hello{Agent: h.Agent, Incarnation: h.Incarnation}
	}
	for _, a := range m.Acks {
		in.msg.Acks = append(in.msg.Acks, shardsvc.Ack{Token: token(a.Token), Prefix: a.Prefix, Step: a.Step, From: a.From,
			Told: a.Tally != nil, Rows: a.Tally.GetRows(), Oldest: a.Tally.GetOldest(), Newest: a.Tally.GetNewest()})
	}
	for _, s := range m.Steps {
		in.msg.Steps = append(in.msg.Steps, shardsvc.StepReport{Worker: s.Worker, Step: s.Step})
	}
	for _, r := range m.Requests {
		in.msg.Requests = append(in.msg.Requests, shardsvc.LeaseRequest{ID: r.Id, Worker: r.Worker, Dataset: r.Dataset,
			Rate: rate(r.Rate), Count: min(max(r.Count, 1), maxCount)})
	}
	if err := limit(in.msg.Requests); err != nil {
		panic(err)
	}
	for _, l := range m.Leaves {
		in.msg.Leaves = append(in.msg.Leaves, shardsvc.Leave{Worker: l.Worker, Reason: leaveReason(l.Reason), Ended: l.Ended, Detail: l.Detail})
	}
	for _, k := range m.Calls {
		b, err := proto.Marshal(k)
		if err != nil {
			panic(err)
		}
		if err := in.cutCall(b); err != nil {
			panic(err)
		}
	}
	for _, h := range m.Held {
		in.msg.Held = append(in.msg.Held, shardsvc.Held{Token: token(h.Token), Worker: h.Worker, Dataset: h.Dataset, Partition: h.Partition,
			Pass: h.Pass, Segment: h.Segment, Start: h.LeaseStart, End: h.LeaseEnd, Frontier: h.Frontier})
	}
	return in
}

func same(t interface{ Fatalf(string, ...any) }, got, want *inbound) {
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"sent_at", got.sentAt, want.sentAt}, {"hello", got.hello, want.hello},
		{"acks", got.msg.Acks, want.msg.Acks}, {"steps", got.msg.Steps, want.msg.Steps},
		{"requests", got.msg.Requests, want.msg.Requests}, {"leaves", got.msg.Leaves, want.msg.Leaves},
		{"held", got.msg.Held, want.msg.Held}, {"calls", got.msg.Calls, want.msg.Calls}, {"bad calls", len(got.badCalls), len(want.badCalls)},
	} {
		g, w := reflect.ValueOf(c.got), reflect.ValueOf(c.want)
		if g.Kind() == reflect.Slice && g.Len() == 0 && w.Len() == 0 {
			continue
		}
		if !reflect.DeepEqual(c.got, c.want) {
			t.Fatalf("%s: got %+v, want %+v", c.what, c.got, c.want)
		}
	}
}

func anyToken(t *rapid.T) *headracev1.Token {
	if rapid.Bool().Draw(t, "no token") {
		return nil
	}
	return &headracev1.Token{Epoch: rapid.Uint32().Draw(t, "epoch"), Term: rapid.Uint32().Draw(t, "term"), Sequence: rapid.Uint64().Draw(t, "sequence")}
}

func anyTally(t *rapid.T) *headracev1.Tally {
	if rapid.Bool().Draw(t, "no tally") {
		return nil
	}
	return &headracev1.Tally{Rows: rapid.Int64().Draw(t, "rows"), Oldest: rapid.Int64().Draw(t, "oldest"), Newest: rapid.Int64().Draw(t, "newest")}
}

func anyAgentMessage(t *rapid.T) *headracev1.AgentMessage {
	m := &headracev1.AgentMessage{SentAt: rapid.Int64().Draw(t, "sent")}
	if rapid.Bool().Draw(t, "hello") {
		m.Hello = &headracev1.Hello{Protocol: 1, Agent: rapid.String().Draw(t, "agent"), Incarnation: rapid.Uint64().Draw(t, "inc")}
	}
	n := rapid.IntRange(0, 3)
	for range n.Draw(t, "acks") {
		m.Acks = append(m.Acks, &headracev1.Ack{Token: anyToken(t), Prefix: rapid.Int64().Draw(t, "prefix"),
			Step: rapid.Int64().Draw(t, "step"), Worker: rapid.Uint32().Draw(t, "worker"),
			From: rapid.Int64().Draw(t, "from"), Tally: anyTally(t)})
	}
	for range n.Draw(t, "steps") {
		m.Steps = append(m.Steps, &headracev1.StepReport{Worker: rapid.Uint32().Draw(t, "worker"), Step: rapid.Int64().Draw(t, "step")})
	}
	for range n.Draw(t, "requests") {
		m.Requests = append(m.Requests, &headracev1.LeaseRequest{Id: rapid.Uint64().Draw(t, "id"), Worker: rapid.Uint32().Draw(t, "worker"),
			Dataset: rapid.Uint32().Draw(t, "dataset"), Rate: rapid.Float64().Draw(t, "rate"), Count: rapid.Uint32().Draw(t, "count")})
	}
	for range n.Draw(t, "leaves") {
		m.Leaves = append(m.Leaves, &headracev1.Leave{Worker: rapid.Uint32().Draw(t, "worker"),
			Reason: headracev1.Leave_Reason(rapid.Int32Range(-1, 9).Draw(t, "reason")), Detail: rapid.String().Draw(t, "detail")})
	}
	for range n.Draw(t, "calls") {
		m.Calls = append(m.Calls, &headracev1.CutCall{Worker: rapid.Uint32().Draw(t, "worker"), Id: rapid.Uint64().Draw(t, "call"),
			Call: &headracev1.CutCall_Drop{Drop: &headracev1.CutDrop{Cut: rapid.Uint64().Draw(t, "cut"), Reason: rapid.String().Draw(t, "reason")}}})
	}
	for range n.Draw(t, "held") {
		m.Held = append(m.Held, &headracev1.Held{Token: anyToken(t), Partition: rapid.Uint32().Draw(t, "part"), LeaseEnd: rapid.Int64().Draw(t, "end")})
	}
	return m
}

func TestMessagesReadByHandAreThoseOfGeneratedCode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyAgentMessage(t)
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		in := newInbound(&stream{})
		defer in.free()
		if err := in.decode(b); err != nil {
			t.Fatal(err)
		}
		want := slow(m)
		same(t, in, &want)
	})
}

// Whatever generated code makes of some bytes, decode makes of them too; it
// never panics, and refuses what is no protocol buffer.
func FuzzDecode(f *testing.F) {
	for _, m := range []*headracev1.AgentMessage{
		{SentAt: 5, Hello: &headracev1.Hello{Agent: "a", Protocol: 1}},
		{Acks: []*headracev1.Ack{{Token: &headracev1.Token{Epoch: 1, Term: 2, Sequence: 3}, Prefix: 10, Step: 4, From: 2, Tally: &headracev1.Tally{Rows: 3, Oldest: 8, Newest: 9}}}},
		{Requests: []*headracev1.LeaseRequest{{Id: 1, Worker: 2, Dataset: 3, Rate: 1e6, Count: 7}}, Steps: []*headracev1.StepReport{{Worker: 1, Step: 9}}},
		{Leaves: []*headracev1.Leave{{Worker: 1, Reason: 3, Detail: "x"}}, Held: []*headracev1.Held{{LeaseEnd: 4}}},
		{Calls: []*headracev1.CutCall{{Worker: 1, Id: 2, Call: &headracev1.CutCall_Ask{Ask: &headracev1.CutAsk{Cut: 3, Step: 4}}},
			{Worker: 1, Id: 3, Call: &headracev1.CutCall_Restore{Restore: &headracev1.Restore{Body: []byte("{}")}}}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x2a, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		in := newInbound(&stream{})
		defer in.free()
		err := in.decode(b)
		var m headracev1.AgentMessage
		if proto.Unmarshal(b, &m) != nil {
			return // ours may be more lenient about text, never less about the rest
		}
		if err != nil {
			t.Fatalf("refused what generated code reads: %v", err)
		}
		if len(b) < 1<<16 && countHellos(b) < 2 { // a repeated hello merges in generated code and is a new one here: both are refused later
			want := slow(&m)
			same(t, in, &want)
		}
	})
}

func countHellos(b []byte) (n int) {
	for len(b) > 0 {
		num, typ, k := protowire.ConsumeField(b)
		if k < 0 {
			return n
		}
		if num == 1 && typ == protowire.BytesType {
			n++
		}
		b = b[k:]
	}
	return n
}

func TestRatesThatAreNoneAreUnknown(t *testing.T) {
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, math.MaxFloat64} {
		if got := rate(f); got != 0 {
			t.Errorf("rate(%v) = %v", f, got)
		}
	}
	if rate(12.5) != 12.5 {
		t.Error("a rate is not itself")
	}
}

func TestOneMessageMayNotAskForMoreThanTheLoopDoesAtOnce(t *testing.T) {
	reqs := make([]shardsvc.LeaseRequest, 100)
	for i := range reqs {
		reqs[i].Count = maxCount
	}
	if err := limit(reqs); err != nil {
		t.Fatal(err)
	}
	sum := uint32(0)
	for _, r := range reqs {
		sum += r.Count
	}
	if sum != maxCounts || reqs[0].Count != maxCount || reqs[99].Count != 1 {
		t.Fatalf("%d leases, first %d, last %d", sum, reqs[0].Count, reqs[99].Count)
	}
	if err := limit(make([]shardsvc.LeaseRequest, maxCounts+1)); err == nil {
		t.Fatal("too many requests were taken")
	}
}

// decodeAll reads what an outbox hands out.
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
	enc := encoder{job: "j", model: "shared", version: "v", ttl: 5000}
	tok := shardsvc.Token{Epoch: 1, Term: 2, Sequence: 1 << 40}
	wt := wireToken(tok)
	pieces := []shardsvc.Piece{{Segment: 9}, {OrderStart: 5, Segment: 3, Start: 10, End: 20, Locator: []byte{0, 1}, Name: "bad\xffname"}, {OrderStart: 15, Segment: 4, End: 5}}
	replies := []shardsvc.Reply{
		{Kind: shardsvc.ReplyHello, Term: 2, Epoch: 1},
		{Kind: shardsvc.ReplyHeld, Was: tok, Token: tok, Prefix: 7, End: 9},
		{Kind: shardsvc.ReplyHeld, Was: tok, Refused: true, Reason: "gone"},
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
		o.add(replies[i].Kind, enc.encode(&replies[i], pieces))
	}
	o.batchEcho = 77
	if o.take() != nil {
		t.Fatal("a part of a batch could be taken")
	}
	if !o.publish() {
		t.Fatal("full")
	}
	want := &headracev1.MasterMessage{
		Hello: &headracev1.HelloReply{Protocol: 1, Job: "j", Model: "shared", Term: 2, Epoch: 1, SessionTtlMs: 5000, Master: "v",
			Held: []*headracev1.HeldReply{{Was: wt, Token: wt, Prefix: 7, LeaseEnd: 9}, {Was: wt, Token: &headracev1.Token{}, Refused: true, Reason: "gone"}}},
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
	enc := encoder{}
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
		for _, batches := range []bool{false, true} { // all in one batch, or each a batch of its own
			o := newOutbox(1 << 20)
			for i, k := range c.order {
				o.add(k, enc.encode(&shardsvc.Reply{Kind: k}, nil))
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
	field := (&encoder{}).encode(&shardsvc.Reply{Kind: shardsvc.ReplyAck, Reason: string(make([]byte, 300<<10))}, nil)
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
	enc := &encoder{}
	o.add(shardsvc.ReplyHello, enc.encode(&shardsvc.Reply{Kind: shardsvc.ReplyHello, Term: 1}, nil))
	for range 4 {
		o.add(shardsvc.ReplyHeld, enc.encode(&shardsvc.Reply{Kind: shardsvc.ReplyHeld, Reason: string(make([]byte, 400<<10))}, nil))
	}
	o.publish()
	if got := decodeAll(t, o); len(got) != 1 || len(got[0].Hello.Held) != 4 {
		t.Fatalf("%d messages", len(got))
	}
}

func TestAFullOutboxTakesNothingMore(t *testing.T) {
	o := newOutbox(100)
	put := func() bool {
		o.add(shardsvc.ReplyAck, make([]byte, 60))
		return o.publish()
	}
	if !put() || put() {
		t.Fatal("the limit is not kept")
	}
	if b := o.take(); len(*b) != 60 || !put() {
		t.Fatal("what was taken still counts")
	}
}
