package hold_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
)

// The agent does not trust the batches that a trainer says it has. Whatever the trainer claims, the
// core's invariants hold, and a refused claim changes nothing.
func TestClaimsThatMakeNoSenseLeaveNothingBehind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		core := hold.New(hold.Config{Hello: &pb.Hello{Agent: "a"}})
		var fx hold.Effects
		small := rapid.Uint32Range(0, 4)
		place := rapid.Int64Range(-1, 6)
		for n := range uint32(3) {
			before := core.Dump()
			var resume []hold.Resume
			for range rapid.IntRange(0, 2).Draw(t, "streams") {
				r := hold.Resume{Stream: small.Draw(t, "stream"), Dataset: small.Draw(t, "dataset"), Tracked: rapid.Bool().Draw(t, "tracked"),
					Stepped: small.Draw(t, "stepped"), Acked: small.Draw(t, "acked")}
				for i := range rapid.IntRange(0, 3).Draw(t, "batches") {
					b := hold.ResumedBatch{Number: r.Acked + uint32(i) + 1, Stepped: rapid.Bool().Draw(t, "is stepped"), Step: place.Draw(t, "step")}
					for range rapid.IntRange(0, 2).Draw(t, "spans") {
						b.Spans = append(b.Spans, hold.Span{Token: hold.Token{Sequence: uint64(small.Draw(t, "token"))}, Dataset: r.Dataset,
							From: place.Draw(t, "from"), To: place.Draw(t, "to")})
					}
					r.Batches = append(r.Batches, b)
				}
				resume = append(resume, r)
			}
			fx.Reset()
			core.Step(int64(n)+1, &hold.Join{Join: &pb.Join{Worker: n + 1, Rank: n}, Resume: resume}, &fx)
			if fx.Invalid != "" && body(core.Dump()) != body(before) {
				t.Fatalf("a claim was refused (%s), but it changed the core to\n%s\nfrom\n%s", fx.Invalid, core.Dump(), before)
			}
			if err := core.Check(); err != nil {
				t.Fatal(err)
			}
		}
		fx.Reset()
		core.Step(10, &hold.Connected{}, &fx)
		for _, h := range fx.Send[0].Held {
			if h.LeaseStart > h.LeaseEnd || h.Frontier != h.LeaseEnd {
				t.Fatalf("%v", h)
			}
		}
	})
}

// body returns a dump without its first line, which has the time.
func body(dump string) string {
	_, rest, _ := strings.Cut(dump, "\n")
	return rest
}

// Trainers in another container of the pod cannot be seen by the agent, so it never learns that their processes have
// ended. They come and go for months, and each Step walks all workers. One whose process is seen is kept until its end
// is known, because the master waits for it.
func TestATrainerWhoseProcessNobodySeesIsForgottenWhenItHasLeft(t *testing.T) {
	for _, unseen := range []bool{true, false} {
		c := hold.New(hold.Config{Hello: &pb.Hello{Agent: "a"}, Prefetch: time.Second})
		var fx hold.Effects
		now := hold.Time(1)
		forgotten := 0
		step := func(ev hold.Event) {
			now += hold.Time(time.Millisecond)
			fx.Reset()
			c.Step(now, ev, &fx)
			forgotten += len(fx.Forgotten)
		}
		master := func(m *pb.MasterMessage) { m.Echo = int64(now); step(&hold.Received{Message: m}) }
		step(&hold.Connected{})
		master(&pb.MasterMessage{Hello: &pb.HelloReply{Protocol: 1, Job: "j", Model: "replicated", SessionTtlMs: 5000}})
		for n := uint32(1); n <= 3; n++ {
			step(&hold.Join{Join: &pb.Join{Worker: n, Rank: 0, Incarnation: uint64(n), WorldSize: 1}})
			master(&pb.MasterMessage{Joins: []*pb.JoinReply{{Worker: n, Generation: n, Epoch: 1}}})
			step(&hold.Gone{Worker: n, Reason: pb.Leave_LOST, Unseen: unseen})
			master(&pb.MasterMessage{})
		}
		if want := map[bool]int{true: 3, false: 0}[unseen]; forgotten != want {
			t.Errorf("nobody sees their processes: %v. %d of 3 trainers that have left were forgotten, want %d", unseen, forgotten, want)
		}
	}
}
