package hold_test

import (
	"testing"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
)

// A reported step is closed. So a step that has batches of several streams is reported after the
// acks of all of them, however late the last one comes.
func TestAStepOfSeveralStreamsIsReportedWithItsLast(t *testing.T) {
	core := hold.New(hold.Config{Hello: &pb.Hello{Agent: "a"}})
	now := int64(0)
	var acks []*pb.Ack
	var steps []*pb.StepReport
	do := func(ev hold.Event) {
		t.Helper()
		var fx hold.Effects
		now += 1e9
		core.Step(now, ev, &fx)
		if fx.Invalid != "" {
			t.Fatal(fx.Invalid)
		}
		for _, m := range fx.Send {
			acks, steps = append(acks, m.Acks...), append(steps, m.Steps...)
		}
		if err := core.Check(); err != nil {
			t.Fatal(err)
		}
	}
	var held []*pb.HeldReply
	var resume []hold.Resume
	for n := range uint32(3) {
		token := hold.Token{Epoch: 1, Term: 1, Sequence: uint64(n + 1)}
		wire := &pb.Token{Epoch: 1, Term: 1, Sequence: uint64(n + 1)}
		held = append(held, &pb.HeldReply{Was: wire, Token: wire, LeaseEnd: 10})
		resume = append(resume, hold.Resume{Stream: n + 1, Dataset: 1, Virtual: n + 1, Tracked: true,
			Batches: []hold.ResumedBatch{{Number: 1, Spans: []hold.Span{{Token: token, Dataset: 1, Partition: n + 1, To: 10}}}}})
	}
	do(&hold.Join{Join: &pb.Join{Worker: 1}, Resume: resume})
	do(&hold.Connected{})
	do(&hold.Received{Message: &pb.MasterMessage{Hello: &pb.HelloReply{Model: "replicated", SessionTtlMs: 60_000, Held: held},
		Joins: []*pb.JoinReply{{Worker: 1, Generation: 1, Epoch: 1}}, Echo: now}})
	for n := range uint32(2) {
		do(&hold.Stepped{Stream: hold.Stream{Worker: 1, Number: n + 1}, Step: 7, Batches: 1, More: true})
		do(&hold.Tick{}) // sends the acks that wait
	}
	if len(acks) != 2 || len(steps) != 0 {
		t.Fatalf("before the last stream stepped, the acks %v and steps %v were sent; want 2 acks and no step", acks, steps)
	}
	do(&hold.Stepped{Stream: hold.Stream{Worker: 1, Number: 3}, Step: 7, Batches: 1})
	do(&hold.Tick{})
	if len(acks) != 3 || len(steps) != 1 || steps[0].Step != 7 {
		t.Fatalf("after the last stream stepped, the acks %v and steps %v were sent; want 3 acks and step 7", acks, steps)
	}
	for _, a := range acks {
		if a.Step != 7 || a.Prefix != 10 {
			t.Errorf("the ack is %v, want prefix 10 at step 7", a)
		}
	}
	var fx hold.Effects
	core.Step(now+1, &hold.Stepped{Stream: hold.Stream{Worker: 1, Number: 1}, Step: 7}, &fx)
	if fx.Invalid != "" {
		t.Errorf("a repeated step without batches was refused: %s", fx.Invalid)
	}
}

// A batch is short only at the end of the data. If a virtual rank's stream cannot read a range, the
// range comes to this rank again. So the rank is not drained any more, even if it was told so before.
func TestAVirtualRankWhoseRangeCouldNotBeReadIsNotDrained(t *testing.T) {
	core := hold.New(hold.Config{Hello: &pb.Hello{Agent: "a"}})
	now := int64(0)
	do := func(ev hold.Event) (fx hold.Effects) {
		t.Helper()
		now += 1e6
		if core.Step(now, ev, &fx); fx.Invalid != "" {
			t.Fatal(fx.Invalid)
		}
		return fx
	}
	received := func(m *pb.MasterMessage) hold.Effects { return do(&hold.Received{Message: m}) }
	grant := func(request, sequence uint64, start, end int64) *pb.Grant {
		return &pb.Grant{Request: request, Token: &pb.Token{Epoch: 1, Term: 1, Sequence: sequence}, Worker: 1, Dataset: 1, Partition: 1, LeaseStart: start, LeaseEnd: end}
	}
	drained := func(requests ...uint64) *pb.MasterMessage {
		m := &pb.MasterMessage{}
		for _, id := range requests {
			m.Standings = append(m.Standings, &pb.Standing{Request: id, Worker: 1, Dataset: 1, State: pb.Standing_DRAINED})
		}
		return m
	}
	stream := hold.Stream{Worker: 1, Number: 1}
	do(&hold.Join{Join: &pb.Join{Worker: 1}})
	do(&hold.Connected{})
	received(&pb.MasterMessage{Hello: &pb.HelloReply{Model: "replicated", SessionTtlMs: 60_000}, Joins: []*pb.JoinReply{{Worker: 1, Generation: 1, Epoch: 1}}, Echo: now})
	do(&hold.Open{Stream: stream, Dataset: 1, Virtual: 1, Tracked: true})
	open := do(&hold.Hungry{Stream: stream}).Send[0].Requests[0].Id
	got := received(&pb.MasterMessage{Grants: []*pb.Grant{grant(open, 1, 0, 10)}})
	open = do(&hold.Hungry{Stream: stream}).Send[0].Requests[0].Id
	received(drained(open))
	if fx := do(&hold.Failed{Lease: got.Grants[0].Lease, At: 4, Kind: "io"}); len(fx.States) != 1 || fx.States[0].State != pb.Standing_WAIT {
		t.Errorf("after the failure the stream was told %+v, want wait", fx.States)
	}
	if fx := received(&pb.MasterMessage{Grants: []*pb.Grant{grant(open, 2, 4, 10)}}); len(fx.Grants) != 1 || fx.Grants[0].Standing != pb.Standing_WAIT {
		t.Errorf("the range that could not be read was granted again with %+v, want the standing wait", fx.Grants)
	}
}

// In rounds, the agent does not report a virtual rank as drained while it waits for records that it
// gave back. Otherwise the master would let the rank end its batch, though it is not the last one.
func TestAVirtualRankThatGaveRowsBackIsNotSaidToBeDrained(t *testing.T) {
	core := hold.New(hold.Config{Hello: &pb.Hello{Agent: "a"}})
	now := int64(0)
	said := &pb.RoundReport{}
	do := func(ev hold.Event) (fx hold.Effects) {
		t.Helper()
		now += 1e6
		if core.Step(now, ev, &fx); fx.Invalid != "" {
			t.Fatal(fx.Invalid)
		}
		for _, m := range fx.Send {
			for _, r := range m.Rounds {
				said = r
			}
		}
		return fx
	}
	received := func(m *pb.MasterMessage) hold.Effects { return do(&hold.Received{Message: m}) }
	drained := func(request uint64) hold.Effects {
		return received(&pb.MasterMessage{Standings: []*pb.Standing{{Request: request, Worker: 1, Dataset: 1, State: pb.Standing_DRAINED}}})
	}
	stream := hold.Stream{Worker: 1, Number: 1}
	do(&hold.Join{Join: &pb.Join{Worker: 1}})
	do(&hold.Connected{})
	received(&pb.MasterMessage{Hello: &pb.HelloReply{Model: "replicated", SessionTtlMs: 60_000}, Joins: []*pb.JoinReply{{Worker: 1, Generation: 1, Epoch: 1}}, Echo: now})
	do(&hold.Open{Stream: stream, Dataset: 1, Virtual: 1, Tracked: true, Rounds: &hold.Rounds{Series: 1}})
	open := do(&hold.Hungry{Stream: stream}).Send[0].Requests[0].Id
	take := func(sequence uint64, start, end int64) hold.Lease {
		got := received(&pb.MasterMessage{Grants: []*pb.Grant{{Request: open, Token: &pb.Token{Epoch: 1, Term: 1, Sequence: sequence}, Worker: 1, Dataset: 1, Partition: 1, LeaseStart: start, LeaseEnd: end}}})
		open = do(&hold.Hungry{Stream: stream}).Send[0].Requests[0].Id
		drained(open)
		return got.Grants[0].Lease
	}
	lease := take(1, 0, 10)
	do(&hold.Ahead{Stream: stream, Rows: true, Dry: true, Newest: lease})
	if !said.Drained || said.Virtual != 1 || said.Newest != 1 {
		t.Errorf("everything was read, but the report is %v, want drained", said)
	}
	do(&hold.Failed{Lease: lease, At: 4, Kind: "io"})
	do(&hold.Ahead{Stream: stream, Rows: true, Dry: true, Newest: lease})
	if said.Drained {
		t.Errorf("a part of the lease will come again, but the report is %v, want not drained", said)
	}
	// The master says drained before it hears of the failure. The batch is still not the last one.
	if fx := drained(open); len(fx.States) != 1 || fx.States[0].State != pb.Standing_WAIT || said.Drained {
		t.Errorf("the master said drained before it heard of the failure: the stream was told %+v, the report is %v; want wait and not drained", fx.States, said)
	}
	lease = take(2, 4, 10)
	do(&hold.Ahead{Stream: stream, Rows: true, Dry: true, Newest: lease})
	if !said.Drained || said.Newest != 2 {
		t.Errorf("the range came again and was read, but the report is %v, want drained with lease 2", said)
	}
}

// A stream may ask for another lead before the readers of earlier leads are open. At most openingMost
// (16) leads may have readers that are not open yet.
func TestSixteenReadersAtMostAreWaitedFor(t *testing.T) {
	core := hold.New(hold.Config{Hello: &pb.Hello{Agent: "a"}})
	now := int64(0)
	do := func(ev hold.Event) (fx hold.Effects) {
		t.Helper()
		now += 1e6
		if core.Step(now, ev, &fx); fx.Invalid != "" {
			t.Fatal(fx.Invalid)
		}
		return fx
	}
	request := func(fx hold.Effects) (id uint64) {
		for _, m := range fx.Send {
			for _, r := range m.Requests {
				id = r.Id
			}
		}
		return id
	}
	stream := hold.Stream{Worker: 1, Number: 1}
	do(&hold.Join{Join: &pb.Join{Worker: 1}})
	do(&hold.Connected{})
	do(&hold.Received{Message: &pb.MasterMessage{Hello: &pb.HelloReply{Model: "shared", SessionTtlMs: 60_000}, Joins: []*pb.JoinReply{{Worker: 1, Generation: 1, Epoch: 1}}, Echo: now}})
	do(&hold.Open{Stream: stream, Dataset: 1, Tracked: true})
	open := request(do(&hold.Hungry{Stream: stream}))
	var first hold.Lease
	n := uint64(0)
	for head := int64(100); open != 0 && n < 100; {
		n++
		fx := do(&hold.Received{Message: &pb.MasterMessage{Grants: []*pb.Grant{{Request: open, Token: &pb.Token{Epoch: 1, Term: 1, Sequence: n}, Worker: 1, Dataset: 1,
			Partition: uint32(n), LeaseStart: head, LeaseEnd: head + 1000, Head: &head}}}})
		if open = request(fx); n == 1 {
			first = fx.Grants[0].Lease
		}
	}
	if n != 16 {
		t.Errorf("%d leads were asked for before a reader was open, want 16", n)
	}
	if request(do(&hold.HeadSeen{Lease: first, Head: 100, Waits: true})) == 0 {
		t.Error("one reader has opened and waits, but no other lead is asked for")
	}
}

// A batch without rows has no ack, so the master never answers that it is durable. If a process has
// stepped such a batch and brings it to another agent, it is durable when the process has joined.
func TestAStepWithoutRowsIsDurableAtTheNextAgent(t *testing.T) {
	core := hold.New(hold.Config{Hello: &pb.Hello{Agent: "a"}})
	now := int64(0)
	do := func(ev hold.Event) (fx hold.Effects) {
		t.Helper()
		now += 1e6
		if core.Step(now, ev, &fx); fx.Invalid != "" {
			t.Fatal(fx.Invalid)
		}
		return fx
	}
	stream := hold.Stream{Worker: 1, Number: 1}
	do(&hold.Join{Join: &pb.Join{Worker: 1, Generation: 1}, Resume: []hold.Resume{{
		Stream: 1, Dataset: 1, Tracked: true, Acked: 2, Stepped: 4, Rounds: &hold.Rounds{Series: 1, Told: 4},
		Batches: []hold.ResumedBatch{{Number: 3, Stepped: true, Step: 3}, {Number: 4, Stepped: true, Step: 4}, {Number: 5}},
	}}})
	do(&hold.Connected{})
	fx := do(&hold.Received{Message: &pb.MasterMessage{
		Hello: &pb.HelloReply{Model: "replicated", SessionTtlMs: 60_000}, Joins: []*pb.JoinReply{{Worker: 1, Generation: 1, Epoch: 1, LastStep: 2}}, Echo: now,
	}})
	if len(fx.Acked) != 1 || fx.Acked[0] != (hold.Acked{Stream: stream, Through: 4}) {
		t.Errorf("the stream was told that %+v is durable, want the batches up to 4", fx.Acked)
	}
}

// tail="drop": a process has stepped the last round and has left, and the session breaks before the
// master has processed that. A new master hears of the process's rounds together with its Leave.
func TestAProcessThatLeftBehindItsLastRoundSaysSoToTheNextMaster(t *testing.T) {
	core := hold.New(hold.Config{Hello: &pb.Hello{Agent: "a"}})
	now := int64(0)
	do := func(ev hold.Event) (fx hold.Effects) {
		t.Helper()
		now += 1e6
		if core.Step(now, ev, &fx); fx.Invalid != "" {
			t.Fatal(fx.Invalid)
		}
		return fx
	}
	welcome := func() hold.Effects {
		do(&hold.Connected{})
		return do(&hold.Received{Message: &pb.MasterMessage{Hello: &pb.HelloReply{Model: "replicated", SessionTtlMs: 60_000}, Joins: []*pb.JoinReply{{Worker: 1, Generation: 1, Epoch: 1}}, Echo: now - 1e6}})
	}
	stream := hold.Stream{Worker: 1, Number: 1}
	do(&hold.Join{Join: &pb.Join{Worker: 1}})
	welcome()
	do(&hold.Open{Stream: stream, Dataset: 1, Tracked: true, Rounds: &hold.Rounds{Series: 1, Drop: true}})
	do(&hold.Received{Message: &pb.MasterMessage{Rounds: []*pb.RoundDecision{{Worker: 1, Dataset: 1, Series: 1, Last: true}}}}) // no round is full
	do(&hold.Arrived{Stream: stream, Last: true})
	do(&hold.Gone{Worker: 1, Reason: pb.Leave_CLOSED})
	do(&hold.Disconnected{})
	var rounds []*pb.RoundReport
	var leaves []*pb.Leave
	for _, m := range append(welcome().Send, do(&hold.Tick{}).Send...) {
		if leaves = append(leaves, m.Leaves...); len(m.Leaves) > 0 {
			rounds = append(rounds, m.Rounds...) // in the message of the Leave: after it, the master does not know the process any more
		}
	}
	if len(leaves) != 1 || len(rounds) != 1 || !rounds[0].Done || !rounds[0].Again || !rounds[0].ToldLast {
		t.Errorf("the new master got the rounds %v and the leaves %v in one message, want one of each", rounds, leaves)
	}
}
