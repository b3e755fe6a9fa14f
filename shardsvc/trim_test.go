package shardsvc

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// pushedWorld is a job that reads pushed records of one partition.
func pushedWorld(t *testing.T, model string) *world {
	w := newWorld(t, Config{Job: "j", Model: model})
	w.step(&ApplyDataset{ID: 1, Name: "pushed", Options: Options{Passes: 1, Initial: 10, Min: 1, Max: 10, Target: Second, Unit: sources.Records, GoOnAfterLoss: true}})
	w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "landing:x/0"})
	w.step(&PartitionsListed{Dataset: 1})
	w.joins(0)
	return w
}

func (w *world) joins(incarnation uint64) {
	w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1 + incarnation},
		Joins: []Join{{Worker: 1, Incarnation: 10 + incarnation, WorldSize: 1}}})
}

// lands appends n transactions of one chunk each.
func (w *world) lands(from, n int, records int64) {
	for i := from; i < from+n; i++ {
		w.step(&Land{Dataset: 1, Transaction: fmt.Sprint("t", i), Records: records, When: int64(i),
			Parts: []LandPart{{1, []sources.Segment{chunk(fmt.Sprint("c", i), records)}}}})
	}
}

// trains takes n leases and acks them at a step.
func (w *world) trains(n int, step int64) {
	m := &Message{Session: 1, Steps: []StepReport{{Worker: 1, Step: step}}}
	for _, g := range w.grants(n) {
		m.Acks = append(m.Acks, Ack{Token: g.Token, Prefix: g.End, Step: step})
	}
	w.step(m)
}

// saves freezes and binds a cut.
func (w *world) saves(id uint64, step int64) *cut.Cut {
	w.step(&Message{Session: 1, Calls: []CutCall{{Worker: 1, ID: id, Ask: &CutAsk{Cut: id, Step: step, Path: fmt.Sprint("/", id)}}}})
	if w.bodies[id] == nil {
		w.t.Fatalf("no cut: %v", w.fx.Replies)
	}
	w.step(&BindCut{Cut: id, Path: fmt.Sprint("/", id)})
	return w.bodies[id]
}

// A private rank's model began with the cut, so the dropped cut keeps its body. If the rank asks
// for it again, the reason must not name a state, because no name stands for that one.
func TestAnAskForADroppedCutSaysThatItWasDropped(t *testing.T) {
	w := pushedWorld(t, Private)
	w.lands(0, 1, 10)
	w.trains(1, 1)
	w.saves(7, 1)
	w.step(&DropCut{Cut: 7})
	w.step(&Message{Session: 1, Calls: []CutCall{{Worker: 1, ID: 9, Ask: &CutAsk{Cut: 7, Step: 1, Path: "/7"}}}})
	if r := w.fx.Replies[0]; r.Cut == nil || r.Cut.Code != CutRefused || r.Reason != "the checkpoint with this cut was voided or dropped: save again" {
		t.Errorf("the reply is %+v, want a refusal that says voided or dropped", r)
	}
}

func (w *world) table() string {
	var all []string
	for _, s := range w.core.Segments(1, -1, 0) {
		all = append(all, fmt.Sprintf("%d=%s:[%d,%d)%s", s.ID, s.Name, s.Start, s.End, map[bool]string{true: "-"}[len(s.Locator) == 0]))
	}
	return strings.Join(all, " ")
}

// stored counts the segments of the store.
func (w *world) stored() (n int) {
	for k := range w.store {
		if k[0] == keySegment {
			n++
		}
	}
	return n
}

func TestSegmentsBelowTheOldestKeptCutLeaveMemoryAndStore(t *testing.T) {
	for _, model := range []string{Shared, Replicated, Private} {
		t.Run(model, func(t *testing.T) {
			w := pushedWorld(t, model)
			w.lands(0, 8, 10)
			w.trains(3, 1)
			w.step(&Trim{Partition: 1, Before: math.MaxInt64})
			if model != Shared { // without a cut, nobody knows which records are in a model, so all segments stay
				if w.stored() != 8 {
					t.Errorf("no cut is kept, but segments were trimmed: %d of 8 are stored, %s", w.stored(), w.table())
				}
			}
			w = pushedWorld(t, model)
			w.lands(0, 8, 10)
			w.trains(3, 1)
			w.saves(77, 1)
			w.trains(3, 2)
			w.step(&Trim{Partition: 1, Before: math.MaxInt64})
			const want = "2=c2:[-20,10)- 3=c3:[0,10) 4=c4:[0,10) 5=c5:[0,10) 6=c6:[0,10) 7=c7:[0,10)"
			for _, when := range []string{"at once", "after a restart"} {
				if got := w.table(); got != want || w.stored() != 6 {
					t.Errorf("%s: %s, want %s; %d stored", when, got, want, w.stored())
				}
				w.restart()
			}
			w.lands(8, 1, 10) // it gets number 8
			if got := w.table(); got != want+" 8=c8:[0,10)" {
				t.Errorf("after one more chunk landed: %s, want %s and 8=c8", got, want)
			}
		})
	}
}

func TestASegmentWhoseChunkIsThereStays(t *testing.T) {
	w := pushedWorld(t, Shared)
	w.lands(0, 8, 10)
	w.trains(6, 1)
	w.saves(77, 1)
	w.step(&Trim{Partition: 1, Before: 2})
	if got := w.table(); got != "1=c1:[-10,10)- 2=c2:[0,10) 3=c3:[0,10) 4=c4:[0,10) 5=c5:[0,10) 6=c6:[0,10) 7=c7:[0,10)" {
		t.Errorf("after a trim before 2: %s", got)
	}
	w.step(&Trim{Partition: 1, Before: 5})
	if got := w.table(); got != "4=c4:[-40,10)- 5=c5:[0,10) 6=c6:[0,10) 7=c7:[0,10)" {
		t.Errorf("after a trim before 5: %s", got)
	}
}

func TestASegmentThatItsSourceNeedsStaysAsItIs(t *testing.T) {
	w := pushedWorld(t, Shared)
	w.lands(0, 8, 10)
	w.trains(7, 1)
	w.saves(77, 1)
	w.step(&Trim{Partition: 1, Before: 7, Needed: []int64{0, 3}})
	const want = "0=c0:[0,10) 2=c2:[-10,10)- 3=c3:[0,10) 6=c6:[-20,10)- 7=c7:[0,10)"
	for _, when := range []string{"at once", "after a restart"} {
		if got := w.table(); got != want || w.stored() != 5 {
			t.Errorf("%s: %s, want %s; %d stored", when, got, want, w.stored())
		}
		w.restart()
	}
	w.step(&Trim{Partition: 1, Before: 7, Needed: []int64{3}})
	if got := w.table(); got != "2=c2:[-20,10)- 3=c3:[0,10) 6=c6:[-20,10)- 7=c7:[0,10)" {
		t.Errorf("after segment 0 is not needed any more: %s", got)
	}
}

func TestASegmentWithAnExcludedRangeStaysAndLosesItsLocator(t *testing.T) {
	w := pushedWorld(t, Shared)
	w.lands(0, 6, 10)
	g := w.grants(1)
	w.step(&Truncated{Partition: 1, Segment: 2, Start: 3, End: 7, Reason: "gone"})
	w.step(&Message{Session: 1, Acks: []Ack{{Token: g[0].Token, Prefix: g[0].End, Step: 1}}})
	w.trains(6, 1)
	w.saves(77, 1)
	w.step(&Trim{Partition: 1, Before: 5})
	const want = "1=c1:[-10,10)- 2=c2:[0,10)- 4=c4:[-10,10)- 5=c5:[0,10)"
	for _, when := range []string{"at once", "after a restart"} {
		if got := w.table(); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
		if some, _ := w.core.Excluded(1, 0, 9); len(some) != 1 || some[0].Segment != 2 || some[0].Start != 3 || some[0].End != 7 {
			t.Errorf("%s: excluded are %+v, want [3, 7) of segment 2", when, some)
		}
		w.restart()
	}
}

// The master has dropped a checkpoint. The checkpoint's own cut still says which records it has.
func TestACutFromBeforeTheTrimNamesItsSegmentsAgain(t *testing.T) {
	for _, model := range []string{Shared, Replicated, Private} {
		t.Run(model, func(t *testing.T) {
			w := pushedWorld(t, model)
			w.lands(0, 8, 10)
			w.trains(2, 1)
			old := w.saves(77, 1)
			w.trains(4, 2)
			w.saves(78, 2)
			w.step(&DropCut{Cut: 77})
			w.step(&Trim{Partition: 1, Before: 6})
			if got := w.table(); got != "5=c5:[-50,10)- 6=c6:[0,10) 7=c7:[0,10)" {
				t.Fatalf("trimmed: %s", got)
			}
			w.core.removed = nil // as after 256 other drops
			maps.DeleteFunc(w.store, func(k string, _ []byte) bool { return k[0] == keyRemoved })
			w.step(&Message{Session: 1, Leaves: []Leave{{Worker: 1, Reason: LeaveExited, Ended: true}}})
			w.step(&Rewind{Cut: old, Path: "/77"})
			if why := w.refused(); why != "" {
				t.Fatal(why)
			}
			const want = "0=c0:[0,10) 1=c1:[0,10) 2=c2:[0,10) 5=c5:[-20,10)- 6=c6:[0,10) 7=c7:[0,10)"
			for _, when := range []string{"at once", "after a restart"} {
				if got := w.table(); got != want {
					t.Errorf("%s: %s, want %s", when, got, want)
				}
				w.restart()
			}
			w.joins(1)
			w.step(&Message{Session: 1, Calls: []CutCall{{Worker: 1, ID: 9, Restore: &RestoreCall{Mode: RestoreExact, Cut: old, Path: "/77"}}}})
			if got := fmt.Sprint(w.rest()); got != "map[c2:[[0 10]] c5:[[-20 -10] [-10 0] [0 10]] c6:[[0 10]] c7:[[0 10]]]" {
				t.Errorf("granted: %s", got)
			}
		})
	}
}

// A master that has lost its state restores a checkpoint whose table of segments was trimmed.
// With pushed records the table ends at the highest position of the cut, in c6. With another
// source it has all later segments too, because the last one tells the source what it has
// forgotten.
func TestACutAfterTheTrimRestoresOnAnEmptyMaster(t *testing.T) {
	for _, c := range []struct {
		pushed      bool
		table, rest string
	}{
		{true, "4=c4:[-40,10)- 5=c5:[0,10) 6=c6:[0,10)", "map[c6:[[0 10]] c8:[[0 10]]]"},
		{false, "4=c4:[-40,10)- 5=c5:[0,10) 6=c6:[0,10) 7=c7:[0,10)", "map[c6:[[0 10]] c7:[[0 10]] c8:[[0 10]]]"},
	} {
		w := pushedWorld(t, Replicated)
		options := Options{Passes: 1, Initial: 10, Min: 1, Max: 10, Target: Second, Unit: sources.Records, Pushed: c.pushed}
		w.step(&ApplyDataset{ID: 1, Name: "pushed", Options: options})
		w.lands(0, 8, 10)
		w.trains(5, 1)
		w.saves(77, 1)
		w.step(&Trim{Partition: 1, Before: 5})
		w.trains(1, 2)
		body := w.saves(78, 2)
		if err := body.Validate(); err != nil {
			t.Fatal(err)
		}
		w = newWorld(t, Config{Job: "j", Model: Replicated})
		options.Pushed = false
		w.step(&ApplyDataset{ID: 1, Name: "pushed", Options: options})
		w.joins(0)
		if code, reason := w.restored(body); code != CutOK {
			t.Fatal(code, reason)
		}
		if got := w.table(); got != c.table {
			t.Errorf("pushed %v: the table is %s, want %s", c.pushed, got, c.table)
		}
		w.lands(8, 1, 10)
		if got := fmt.Sprint(w.rest()); got != c.rest {
			t.Errorf("pushed %v: granted %s, want %s", c.pushed, got, c.rest)
		}
	}
}

// twins are two jobs that live through the same events. Only one of them trims.
type twins struct {
	t       *testing.T
	trims   *world
	keeps   *world
	kept    []uint64
	granted []Reply // leases that are not acked
}

func (tw *twins) step(ev Event) {
	tw.trims.step(ev)
	tw.keeps.step(ev)
	if a, b := tw.answers(tw.trims), tw.answers(tw.keeps); a != b {
		tw.t.Fatalf("after %T %+v the job that trims answers\n%s\nand the other\n%s", ev, ev, a, b)
	}
}

func (tw *twins) answers(w *world) string {
	var b strings.Builder
	for _, r := range w.fx.Replies {
		if r.Kind == ReplyCut && r.Cut.Body != nil { // its tables differ
			body := *r.Cut.Body
			body.Datasets = slices.Clone(body.Datasets)
			for i := range body.Datasets {
				body.Datasets[i].Partitions = slices.Clone(body.Datasets[i].Partitions)
				for j := range body.Datasets[i].Partitions {
					body.Datasets[i].Partitions[j].Segments = nil
				}
			}
			r.Cut.Body = &body
		}
		fmt.Fprintln(&b, r.text(w.fx.Pieces))
	}
	return b.String()
}

// TestAJobThatTrimsAnswersAsOneThatDoesNot plays transactions, leases that are acked late or
// never, cuts that are bound and dropped, rewinds and restarts.
func TestAJobThatTrimsAnswersAsOneThatDoesNot(t *testing.T) {
	for _, model := range []string{Shared, Replicated, Private} {
		t.Run(model, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			tw := &twins{t: t, trims: pushedWorld(t, model), keeps: pushedWorld(t, model)}
			least := math.MaxInt
			landed, step, id, lives := 0, int64(1), uint64(100), uint64(0)
			// The events go on until 20 segments were trimmed. The limit ends a job that trims
			// nothing.
			for n := 0; n < 1500 || least > -20 && n < 60_000; n++ {
				switch rng.IntN(12) {
				case 0, 1, 2:
					for _, w := range []*world{tw.trims, tw.keeps} {
						w.lands(landed, 1, 5+int64(landed%9))
					}
					landed++
				case 3, 4, 5:
					tw.step(&Message{Session: 1, Requests: []LeaseRequest{{ID: id<<20 | uint64(landed), Worker: 1, Dataset: 1, Count: uint32(1 + rng.IntN(3))}}})
					id++
					for _, r := range tw.keeps.fx.Replies {
						if r.Kind == ReplyGrant {
							tw.granted = append(tw.granted, r)
						}
					}
				case 6, 7:
					step++
					m := &Message{Session: 1, Steps: []StepReport{{Worker: 1, Step: step}}}
					tw.granted = slices.DeleteFunc(tw.granted, func(g Reply) bool {
						late := rng.IntN(5) == 0
						if !late {
							m.Acks = append(m.Acks, Ack{Token: g.Token, Prefix: g.End, Step: step})
						}
						return !late
					})
					tw.step(m)
				case 8:
					id++
					tw.step(&Message{Session: 1, Calls: []CutCall{{Worker: 1, ID: id, Ask: &CutAsk{Cut: id, Step: step, Path: fmt.Sprint("/", id)}}}})
					if tw.keeps.bodies[id] != nil {
						tw.step(&BindCut{Cut: id, Path: fmt.Sprint("/", id)})
						tw.kept = append(tw.kept, id)
					}
				case 9:
					if len(tw.kept) > 2 {
						tw.step(&DropCut{Cut: tw.kept[0]})
						tw.kept = tw.kept[1:]
					}
				case 10:
					trim := &Trim{Partition: 1, Before: rng.Int64N(int64(landed) + 2)}
					for id := range int64(landed) {
						if rng.IntN(10) == 0 {
							trim.Needed = append(trim.Needed, id)
						}
					}
					tw.trims.step(trim)
					least = min(least, len(tw.trims.core.Segments(1, -1, 0))-landed)
				case 11:
					if rng.IntN(6) > 0 || len(tw.kept) == 0 {
						continue
					}
					back := tw.kept[rng.IntN(len(tw.kept))]
					tw.step(&Message{Session: 1, Leaves: []Leave{{Worker: 1, Reason: LeaveExited, Ended: true}}})
					tw.step(&Rewind{Cut: tw.keeps.bodies[back], Path: fmt.Sprint("/", back)})
					tw.kept = tw.kept[:slices.Index(tw.kept, back)+1]
					if rng.IntN(2) == 0 {
						tw.trims.restart()
						tw.keeps.restart()
					}
					lives++
					tw.trims.joins(lives)
					tw.keeps.joins(lives)
					tw.granted = nil
					tw.step(&Message{Session: 1, Calls: []CutCall{{Worker: 1, ID: id, Restore: &RestoreCall{Mode: RestoreExact, Cut: tw.keeps.bodies[back], Path: fmt.Sprint("/", back)}}}})
				}
			}
			if least > -20 {
				t.Errorf("at most %d segments were trimmed at a time, want 20", -least)
			}
		})
	}
}
