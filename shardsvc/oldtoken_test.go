package shardsvc

import (
	"slices"
	"testing"

	"github.com/headrace/headrace/sources"
)

// A process of a shared model has a lease when the master restarts. The lease keeps its token,
// so batches from before and after the restart name the same token. Then agent and process
// end. The next agent asserts the lease from the process's step file. It reports the stepped
// records, and that the process has ended. None of these records is granted again, even after
// another restart of the master.
func TestStepsOfALeaseOfAnOlderTermCountWhenTheNextAgentTellsThem(t *testing.T) {
	for _, heard := range []int64{0, 30, 50, 60, 80, 90, 100} { // how far the agent that died had acked the lease
		w := newWorld(t, Config{Job: "j", Model: Shared})
		w.step(&ApplyDataset{ID: 1, Name: "d", Options: Options{Passes: 1, Initial: 100, Min: 100, Max: 100, Target: Second, Unit: sources.Records}})
		w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "a"})
		w.step(&PartitionsListed{Dataset: 1})
		w.step(&AddSegments{Partition: 1, Complete: true, Segments: []sources.Segment{{End: 200, Sealed: true}}})
		w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: []Join{{Worker: 1, Rank: 3, Incarnation: 6, WorldSize: 4, Resume: ResumeStart}}})
		first := w.grants(1)[0].Token

		w.restart()
		held := func(token Token, worker uint32, from, to int64) Held {
			return Held{Token: token, Worker: worker, Dataset: 1, Partition: 1, Start: from, End: to, Frontier: to}
		}
		join := func(worker uint32) []Join {
			return []Join{{Worker: worker, Rank: 3, Incarnation: 6, WorldSize: 4, Generation: 1}}
		}
		now := func() (all []Reply) {
			for _, r := range w.fx.Replies {
				if r.Kind == ReplyHeld {
					if r.Refused {
						t.Fatalf("acked to %d: the asserted lease was refused: %+v", heard, r)
					}
					all = append(all, r)
				}
			}
			return all
		}
		w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: join(1), Held: []Held{held(first, 1, 0, 100)}})
		if again := now()[0].Token; again != first {
			t.Fatalf("the lease was %v and is %v after the restart", first, again)
		}
		if heard > 0 {
			w.step(&Message{Session: 1, Acks: []Ack{{Token: first, Prefix: heard, Step: 1}}})
		}

		claims := []Held{held(first, 2, 0, 100)}
		for incarnation := uint64(2); incarnation < 4; incarnation++ { // agent 2 ends before it sends its acks
			w.step(&Message{Session: Session(incarnation), Hello: &Hello{Agent: "a", Incarnation: incarnation}, Joins: join(2), Held: slices.Clone(claims)})
		}
		if all := now(); len(all) != 1 || all[0].Token != first {
			t.Fatalf("acked to %d: the asserted leases are %+v, want the one with token %v", heard, all, first)
		}
		w.step(&Message{Session: 3, Acks: []Ack{{Token: first, Prefix: 50, Step: 2}, {Token: first, Prefix: 80, Step: 3}, {Token: first, Prefix: 100, Step: 4}},
			Steps: []StepReport{{Worker: 2, Step: 4}}, Leaves: []Leave{{Worker: 2, Ended: true}}})
		for range 2 {
			if d, _ := w.core.Dataset(1); d.Counts.Acked != 100 || d.Counts.Pending != 0 {
				t.Fatalf("acked to %d: counts %+v, want 100 units acked and none pending", heard, d.Counts)
			}
			w.restart()
		}
	}
}
