package wire

import (
	"math"
	"reflect"
	"slices"
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

var decoder = Decoder{Now: func() int64 { return 1 }}

// slow decodes a message with generated code and plain copies. decode must return the same.
func slow(m *headracev1.AgentMessage) (in Message) {
	in.Event.SentAt = shardsvc.Time(m.SentAt)
	if h := m.Hello; h != nil {
		in.Event.Hello = &shardsvc.Hello{Agent: h.Agent, Incarnation: h.Incarnation, Clock: h.Clock}
	}
	for _, a := range m.Acks {
		in.Event.Acks = append(in.Event.Acks, shardsvc.Ack{Token: Token(a.Token), Prefix: a.Prefix, Step: a.Step, From: a.From,
			Told: a.Tally != nil, Rows: a.Tally.GetRows(), Oldest: a.Tally.GetOldest(), Newest: a.Tally.GetNewest()})
	}
	for _, s := range m.Steps {
		in.Event.Steps = append(in.Event.Steps, shardsvc.StepReport{Worker: s.Worker, Step: s.Step})
	}
	for _, r := range m.Requests {
		in.Event.Requests = append(in.Event.Requests, shardsvc.LeaseRequest{ID: r.Id, Worker: r.Worker, Dataset: r.Dataset,
			Rate: rate(r.Rate), BackfillRate: rate(r.BackfillRate), Count: min(max(r.Count, 1), maxCount), Virtual: r.Virtual})
	}
	if err := limit(in.Event.Requests); err != nil {
		panic(err)
	}
	for _, l := range m.Leaves {
		in.Event.Leaves = append(in.Event.Leaves, shardsvc.Leave{Worker: l.Worker, Reason: leaveReason(l.Reason), Ended: l.Ended, Crash: crash(l.Crash)})
	}
	for _, k := range m.Calls {
		b, err := proto.Marshal(k)
		if err != nil {
			panic(err)
		}
		if err := (&Decoder{}).cutCall(&in, b); err != nil {
			panic(err)
		}
	}
	for _, h := range m.Held {
		in.Event.Held = append(in.Event.Held, shardsvc.Held{Token: Token(h.Token), Worker: h.Worker, Dataset: h.Dataset, Partition: h.Partition,
			Pass: h.Pass, Segment: h.Segment, Start: h.LeaseStart, End: h.LeaseEnd, Frontier: h.Frontier})
	}
	return in
}

func same(t interface{ Fatalf(string, ...any) }, got, want *Message) {
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"sent_at", got.Event.SentAt, want.Event.SentAt}, {"hello", got.Event.Hello, want.Event.Hello},
		{"acks", got.Event.Acks, want.Event.Acks}, {"steps", got.Event.Steps, want.Event.Steps},
		{"requests", got.Event.Requests, want.Event.Requests}, {"leaves", got.Event.Leaves, want.Event.Leaves},
		{"held", got.Event.Held, want.Event.Held}, {"calls", got.Event.Calls, want.Event.Calls}, {"bad calls", len(got.Refusals), len(want.Refusals)},
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
		m.Hello = &headracev1.Hello{Protocol: 1, Agent: rapid.String().Draw(t, "agent"), Incarnation: rapid.Uint64().Draw(t, "inc"), Clock: rapid.Uint64().Draw(t, "clock")}
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
			Dataset: rapid.Uint32().Draw(t, "dataset"), Rate: rapid.Float64().Draw(t, "rate"), BackfillRate: rapid.Float64().Draw(t, "backfill rate"), Count: rapid.Uint32().Draw(t, "count")})
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
		in := &Message{}
		if err := decoder.Decode(b, in); err != nil {
			t.Fatal(err)
		}
		want := slow(m)
		same(t, in, &want)
	})
}

// FuzzDecode: decode and generated code read any bytes as the same message. decode never
// panics, and refuses bytes that are no protocol buffer.
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
		in := &Message{}
		err := decoder.Decode(b, in)
		var m headracev1.AgentMessage
		if proto.Unmarshal(b, &m) != nil {
			return // generated code refuses text that is no UTF-8; decode does not
		}
		if err != nil {
			t.Fatalf("refused what generated code reads: %v", err)
		}
		if len(b) < 1<<16 && countHellos(b) < 2 { // generated code merges two hellos, decode takes the last; a second hello is refused later anyway
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
			t.Errorf("rate(%v) = %v, want 0 for unknown", f, got)
		}
	}
	if rate(12.5) != 12.5 {
		t.Errorf("rate(12.5) = %v, want 12.5", rate(12.5))
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
		t.Fatalf("after limit, %d leases are asked for, the first request asks for %d and the last for %d; want %d, %d and 1", sum, reqs[0].Count, reqs[99].Count, maxCounts, maxCount)
	}
	if err := limit(make([]shardsvc.LeaseRequest, maxCounts+1)); err == nil {
		t.Fatal("a message with too many requests was accepted")
	}
}

func TestWhyALeaseCameBackAndHowATrainerEndedIsForTheLog(t *testing.T) {
	b, err := proto.Marshal(&headracev1.AgentMessage{
		Releases: []*headracev1.Release{{Token: &headracev1.Token{Epoch: 1, Term: 2, Sequence: 3}, Reason: "beyond the last round"}, {Token: &headracev1.Token{Sequence: 4}}},
		Leaves:   []*headracev1.Leave{{Worker: 7, Detail: "signal: killed"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var in Message
	if err := decoder.Decode(b, &in); err != nil {
		t.Fatal(err)
	}
	want := []Note{{Token: shardsvc.Token{Epoch: 1, Term: 2, Sequence: 3}, Why: "beyond the last round"}, {Worker: 7, Why: "signal: killed"}}
	if !slices.Equal(in.Notes, want) {
		t.Errorf("notes are %+v, want %+v", in.Notes, want)
	}
	if in.Reset(); len(in.Notes) != 0 {
		t.Errorf("after Reset notes are %+v", in.Notes)
	}
}
