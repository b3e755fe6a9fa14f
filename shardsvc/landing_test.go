package shardsvc

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headrace/headrace/sources"
)

// landing makes a core with one dataset of two partitions that have no segment.
func landing(t *testing.T) *world {
	w := newWorld(t, Config{Job: "j", Model: Shared})
	w.step(&ApplyDataset{ID: 1, Name: "pushed", Options: Options{Passes: 1, Initial: 10, Min: 1, Max: 100, Target: Second, Unit: sources.Records}})
	w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "landing:x/0"})
	w.step(&AddPartition{Dataset: 1, Number: 2, Identity: "landing:x/1"})
	return w
}

func chunk(name string, records int64) sources.Segment {
	return sources.Segment{End: records, Name: name, Locator: []byte(name)}
}

func (w *world) refused() string {
	for _, r := range w.fx.Reports {
		if r.Kind == ReportRejected {
			return r.Reason
		}
	}
	return ""
}

func (w *world) segments() string {
	var all []string
	for _, no := range []PartitionNo{1, 2} {
		for _, s := range w.core.Segments(no, -1, 0) {
			all = append(all, fmt.Sprintf("%d/%d=%s:%d,%v", no, s.ID, s.Name, s.End, s.Sealed))
		}
	}
	return strings.Join(all, " ")
}

func TestATransactionLandsOnceHoweverOftenItIsCommitted(t *testing.T) {
	w := landing(t)
	ev := &Land{Dataset: 1, Transaction: "t1", Records: 15, When: 1000,
		Parts: []LandPart{{2, []sources.Segment{chunk("a", 5), chunk("b", 7)}}, {1, []sources.Segment{chunk("c", 3)}}}}
	w.step(ev)
	const want = "1/0=c:3,true 2/0=a:5,true 2/1=b:7,true"
	check := func(when string) {
		t.Helper()
		if got := w.segments(); got != want {
			t.Fatalf("%s: %s, want %s", when, got, want)
		}
		if v, ok := w.core.Landed(1, "t1"); !ok || v.Records != 15 || v.When != 1000 {
			t.Fatalf("%s: landed %+v, %v", when, v, ok)
		}
	}
	check("landed")
	w.step(ev)
	check("again")
	w.restart()
	check("after a restart")
	w.step(ev)
	check("again after a restart")
	w.step(&RemoveDataset{ID: 1, Leftover: true})
	for k := range w.store {
		if k[0] == keyTransaction || k[0] == keySegment {
			t.Errorf("%q is left after the dataset was removed", k)
		}
	}
	for _, when := range []string{"at once", "after a restart"} {
		if left := w.core.Leftovers(); len(left) != 1 || left[0].ID != 1 || left[0].Name == "" {
			t.Errorf("%s: what is left at the source of the removed dataset is %+v", when, left)
		}
		w.restart()
	}
	w.step(&SourceReleased{1})
	w.restart()
	if left := w.core.Leftovers(); len(left) != 0 {
		t.Errorf("%+v is left after the source was released", left)
	}
}

func TestATransactionIsForgottenAfterItsTime(t *testing.T) {
	w := landing(t)
	for i := range 5 {
		w.step(&Land{Dataset: 1, Transaction: fmt.Sprint("t", i), When: int64(100 * i), Forget: int64(100*i) - 250, Parts: []LandPart{{1, []sources.Segment{chunk(fmt.Sprint("c", i), 1)}}}})
	}
	for _, when := range []string{"at once", "after a restart"} {
		for i := range 5 {
			if _, ok := w.core.Landed(1, fmt.Sprint("t", i)); ok != (i >= 2) {
				t.Errorf("%s: t%d is remembered: %v", when, i, ok)
			}
		}
		w.restart()
	}
}

// A forgotten transaction does not land again while its chunks are there. That holds after a
// restart too, after landing.remember was made longer, and after the clock was set back.
func TestAForgottenTransactionDoesNotLandTwice(t *testing.T) {
	w := landing(t)
	const remember, clock = 1000, 1_000_000
	land := func(id string, staged, now, remember int64) bool {
		w.step(&Land{Dataset: 1, Transaction: id, When: now, Forget: now - remember, Staged: staged, Parts: []LandPart{{1, []sources.Segment{chunk("chunk of "+id, 1)}}}})
		return w.refused() == ""
	}
	if !land("a", clock, clock+10, remember) || !land("b", clock+2000, clock+2010, remember) {
		t.Fatal(w.refused())
	}
	if _, known := w.core.Landed(1, "a"); known {
		t.Fatal("transaction a is still remembered after its time")
	}
	for _, when := range []string{"at once", "after a restart"} {
		for _, now := range []int64{clock + 3000, clock + 500} { // remembered for longer; the clock went back
			if land("a", clock, now, 100*remember) || !strings.Contains(w.refused(), "chunk of a is visible already") {
				t.Errorf("%s, at %d: transaction a landed again; the refusal is %q", when, now, w.refused())
			}
		}
		if id := "staged long ago, and new " + when; !land(id, clock, clock+3000, 100*remember) {
			t.Errorf("%s: %s", when, w.refused())
		}
		w.restart()
	}
}

func TestNothingOfATransactionLandsUnlessAllOfItCan(t *testing.T) {
	w := landing(t)
	w.step(&AddPartition{Dataset: 1, Number: 3, Identity: "landing:x/2"})
	w.step(&AddSegments{Partition: 3, Complete: true})
	good := LandPart{1, []sources.Segment{chunk("a", 5)}}
	for name, parts := range map[string][]LandPart{
		"no partition 9":  {good, {9, []sources.Segment{chunk("b", 1)}}},
		"there twice":     {good, good},
		"has ended":       {good, {3, []sources.Segment{chunk("b", 1)}}},
		"does not fit":    {good, {2, []sources.Segment{chunk("b", 0)}}},
		"b of [0, 922337": {good, {2, []sources.Segment{chunk("a", 1), chunk("b", 1<<63-1)}}},
	} {
		before := maps.Clone(w.store)
		w.step(&Land{Dataset: 1, Transaction: "t", When: 1, Parts: parts})
		if !strings.Contains(w.refused(), name) {
			t.Errorf("%s: rejected with %q", name, w.refused())
		}
		if w.segments() != "" || !maps.EqualFunc(before, w.store, func(a, b []byte) bool { return string(a) == string(b) }) {
			t.Errorf("%s: the rejected transaction changed the segments: %s", name, w.segments())
		}
		if _, ok := w.core.Landed(1, "t"); ok {
			t.Errorf("%s: the rejected transaction is remembered", name)
		}
	}
}

// TestPushedRecordsAreGrantedAsTheyLand: a worker that waits is granted what lands, and END
// comes when the partitions are complete and everything is settled.
func TestPushedRecordsAreGrantedAsTheyLand(t *testing.T) {
	seed := uint64(rand.Int64())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	w := landing(t)
	w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: []Join{{Worker: 1, Incarnation: 6, WorldSize: 1}}})
	w.step(&PartitionsListed{Dataset: 1})
	var pushed, got int64
	request := uint64(0)
	ask := func() {
		request++
		w.step(&Message{Session: 1, Requests: []LeaseRequest{{ID: request, Worker: 1, Dataset: 1, Count: 1}}})
	}
	ended := false
	take := func() {
		for granted := true; granted; {
			granted = false
			for _, r := range append([]Reply(nil), w.fx.Replies...) {
				switch {
				case r.Kind == ReplyGrant:
					granted, got = true, got+r.End-r.Start
					w.step(&Message{Session: 1, Acks: []Ack{{Token: r.Token, Prefix: r.End, Step: int64(request)}}})
					ask()
				case r.Kind == ReplyStanding && r.State == End:
					ended = true
				}
			}
		}
	}
	ask()
	for i := range 50 {
		n := 1 + rng.Int64N(40)
		pushed += n
		w.step(&Land{Dataset: 1, Transaction: fmt.Sprint(i), When: int64(i), Parts: []LandPart{{PartitionNo(1 + rng.IntN(2)), []sources.Segment{chunk("c", n)}}}})
		take()
		if got != pushed || ended {
			t.Fatalf("%d of %d records were granted after %d transactions; end of data: %v", got, pushed, i+1, ended)
		}
		if rng.IntN(10) == 0 {
			w.step(&Land{Dataset: 1, Transaction: fmt.Sprint(rng.IntN(i + 1)), Parts: []LandPart{{1, []sources.Segment{chunk("c", 9)}}}})
			take()
		}
	}
	for _, no := range []PartitionNo{1, 2} {
		w.step(&AddSegments{Partition: no, Complete: true})
		take()
	}
	if got != pushed || !ended {
		t.Fatalf("%d of %d records, end of data: %v", got, pushed, ended)
	}
}
