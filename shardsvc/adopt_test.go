package shardsvc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

func file(id int64, name string, size int64) sources.Segment {
	return sources.Segment{ID: id, End: size, Sealed: true, Name: name, Locator: []byte("at " + name)}
}

// listedWorld is a job with one dataset of files, in the order given.
func listedWorld(t *testing.T, model string, complete bool, opt Options, files ...sources.Segment) *world {
	w := newWorld(t, Config{Job: "j", Model: model})
	opt.Passes, opt.Initial, opt.Min, opt.Max, opt.Target, opt.Unit = max(opt.Passes, 1), 10, 10, 10, Second, "bytes"
	w.step(&ApplyDataset{ID: 1, Name: "clicks", Options: opt})
	w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "files:clicks"})
	w.step(&AddSegments{Partition: 1, Segments: files, Complete: complete})
	w.step(&PartitionsListed{Dataset: 1})
	w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: []Join{{Worker: 1, Incarnation: 10, WorldSize: 1}}})
	return w
}

// grants asks for n leases.
func (w *world) grants(n int) (all []Reply) {
	w.step(&Message{Session: 1, Requests: []LeaseRequest{{ID: uint64(w.now), Worker: 1, Dataset: 1, Count: uint32(n)}}})
	w.now++
	for _, r := range w.fx.Replies {
		if r.Kind == ReplyGrant {
			all = append(all, r)
		}
	}
	return all
}

// cutOf acks n leases at step 1 and returns the frozen cut at that step.
func (w *world) cutOf(n int) *cut.Cut {
	m := &Message{Session: 1, Steps: []StepReport{{Worker: 1, Step: 1}}, Calls: []CutCall{{Worker: 1, ID: 1, Ask: &CutAsk{Cut: 77, Step: 1, Path: "/c"}}}}
	for _, g := range w.grants(n) {
		m.Acks = append(m.Acks, Ack{Token: g.Token, Prefix: g.End, Step: 1})
	}
	w.step(m)
	if w.bodies[77] == nil {
		w.t.Fatalf("no cut: %v", w.fx.Replies)
	}
	return w.bodies[77]
}

// restored goes back to a cut that another master wrote.
func (w *world) restored(body *cut.Cut) (CutCode, string) {
	w.step(&Message{Session: 1, Calls: []CutCall{{Worker: 1, ID: 9, Restore: &RestoreCall{Mode: RestoreExact, Cut: body, Path: "/c"}}}})
	i := slices.IndexFunc(w.fx.Replies, func(r Reply) bool { return r.Kind == ReplyCut })
	if i < 0 {
		w.t.Fatalf("the restore was not answered; the replies are %v", w.fx.Replies)
	}
	return w.fx.Replies[i].Cut.Code, w.fx.Replies[i].Reason
}

// rest takes and acks all further grants. It returns their ranges by file name.
func (w *world) rest() map[string][][2]int64 {
	out := map[string][][2]int64{}
	for {
		all := w.grants(1)
		if len(all) == 0 {
			return out
		}
		m := &Message{Session: 1}
		for _, p := range w.fx.Pieces {
			out[p.Name] = append(out[p.Name], [2]int64{p.Start, p.End})
		}
		for _, g := range all {
			m.Acks = append(m.Acks, Ack{Token: g.Token, Prefix: g.End, Step: 5})
		}
		w.step(m)
	}
}

// perRank has the model kinds whose acks keep their step.
var perRank = []string{"replicated", "private"}

// All files have one size. One more file sorts first, so a new listing gives the files
// other numbers than the cut has.
func TestACutOfAnotherListingBringsItsNumbersWhereNothingIsSettled(t *testing.T) {
	for _, model := range perRank {
		for _, granted := range []bool{false, true} {
			t.Run(fmt.Sprint(model, granted), func(t *testing.T) {
				body := listedWorld(t, model, true, Options{}, file(0, "a", 20), file(1, "b", 20)).cutOf(3)
				w := listedWorld(t, model, true, Options{}, file(0, "+", 20), file(1, "a", 20), file(2, "b", 20))
				if granted {
					w.grants(2) // the agent fetched ahead before its trainer restored
				}
				if code, reason := w.restored(body); code != CutOK {
					t.Fatal(code, reason)
				}
				if w.core.HasPartition(1) || !w.core.HasPartition(2) {
					t.Fatal("the fresh partition is still there")
				}
				w.restart() // what is stored is the same
				w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: []Join{{Worker: 1, Incarnation: 10, WorldSize: 1, Generation: w.core.Job().Generation}}})
				segs := w.core.Segments(2, -1, 0)
				if len(segs) != len(body.Datasets[0].Partitions[0].Segments) || segs[0].Name != "a" || string(segs[0].Locator) != "at a" {
					t.Fatalf("segments: %+v", segs)
				}
				// The listing goes on with the file that the cut does not know.
				w.step(&AddSegments{Partition: 2, Segments: []sources.Segment{file(2, "+", 20)}, Complete: true})
				if got := fmt.Sprint(w.rest()); got != "map[+:[[0 10] [10 20]] b:[[10 20]]]" {
					t.Errorf("granted after the restore: %s", got)
				}
			})
		}
	}
}

func TestACutOfOtherFilesIsRefusedWhereSomethingIsSettled(t *testing.T) {
	for _, model := range perRank {
		body := listedWorld(t, model, true, Options{}, file(0, "a", 20), file(1, "b", 20)).cutOf(3)
		for want, files := range map[string][]sources.Segment{
			"segment 0 is +, and in the checkpoint it was a":             {file(0, "+", 20), file(1, "a", 20), file(2, "b", 20)},
			"segment 1 (b) is not what it was when":                      {file(0, "a", 20), {ID: 1, End: 20, Sealed: true, Name: "b", Locator: []byte("another")}},
			"segment 1 (b) is [0, 30), and in the checkpoint it was [0,": {file(0, "a", 20), file(1, "b", 30)},
		} {
			w := listedWorld(t, model, true, Options{}, files...)
			other := w.cutOf(1)
			other.ID = 0
			if w.core.Cuts()[0].ID == uint64(body.ID) { // cutOf gives every cut the number 77
				body.ID = 78
			}
			w.step(&Rewind{})
			w.step(&Message{Session: 1, Joins: []Join{{Worker: 2, Incarnation: 11, WorldSize: 1}}})
			w.step(&Message{Session: 1, Requests: []LeaseRequest{{ID: 1000, Worker: 2, Dataset: 1, Count: 1}}})
			m := &Message{Session: 1}
			for _, r := range w.fx.Replies {
				if r.Kind == ReplyGrant {
					m.Acks = append(m.Acks, Ack{Token: r.Token, Prefix: r.End, Step: 1})
				}
			}
			if len(m.Acks) == 0 {
				t.Fatalf("%s: nothing was granted: %v", model, w.fx.Replies)
			}
			w.step(m)
			w.step(&Rewind{Cut: body, Path: "/c"})
			i := slices.IndexFunc(w.fx.Reports, func(r Report) bool { return r.Kind == ReportRejected })
			if i < 0 || !strings.Contains(w.fx.Reports[i].Reason, want) {
				t.Errorf("%s: %v, want %q", model, w.fx.Reports, want)
			}
		}
	}
}

// A master without state numbers segments anew. A cut whose segments the job knows by other
// numbers would add them once more. Their records would then be granted or excluded twice.
func TestACutWhoseSegmentsHaveOtherNumbersAddsNoneOfThemAgain(t *testing.T) {
	for i, model := range append(slices.Clone(perRank), perRank...) {
		a, b := file(5, "a", 20), file(6, "b", 20)
		if i >= len(perRank) { // a source may put more into a locator than the name of the file
			a.Locator, b.Locator = append(slices.Clone(a.Locator), 1), append(slices.Clone(b.Locator), 1)
		}
		body := listedWorld(t, model, true, Options{}, a, b).cutOf(3)
		body.ID = 78 // cutOf gives every cut the number 77
		w := listedWorld(t, model, false, Options{}, file(0, "a", 20), file(1, "b", 20))
		w.cutOf(1)
		w.step(&Rewind{Cut: body, Path: "/c"})
		i := slices.IndexFunc(w.fx.Reports, func(r Report) bool { return r.Kind == ReportRejected })
		if want := "segment 5 (a) of the checkpoint is segment 0 here"; i < 0 || !strings.Contains(w.fx.Reports[i].Reason, want) {
			t.Errorf("%s: %+v, want %q", model, w.fx.Reports, want)
		}
		if d, _ := w.core.Dataset(1); d.Counts.Listed != 40 {
			t.Errorf("%s: %d units are listed, the files have 40", model, d.Counts.Listed)
		}
	}
}

// A shuffled pass is a permutation of all its blocks. With one more file, positions mean
// other records, although the files that the cut knows are the same.
func TestAShuffledCutOfFewerFilesIsNotTakenForOneOfMore(t *testing.T) {
	opt := Options{Shuffle: true, Seed: 3, Block: 10}
	for _, model := range perRank {
		body := listedWorld(t, model, true, opt, file(0, "a", 20), file(1, "b", 20)).cutOf(3)
		w := listedWorld(t, model, true, opt, file(0, "a", 20), file(1, "b", 20), file(2, "c", 20))
		if code, reason := w.restored(body); code != CutOK {
			t.Fatal(code, reason)
		}
		units := int64(0)
		for name, pieces := range w.rest() {
			for _, p := range pieces {
				units += p[1] - p[0]
			}
			if name == "c" {
				t.Errorf("%s: file c was granted, though the input of the cut did not have it", model)
			}
		}
		if units != 10 {
			t.Errorf("%s: %d units were granted after the restore, want the 10 that the cut does not have", model, units)
		}
	}
}

// Guarantee 4: after a restore, exactly the rest of the input is delivered: the input without the
// cut and without the excluded records. No cut of the new master says that an excluded record is
// in its model.
func TestWhatACutSaysIsExcludedStaysSoOnAnEmptyMaster(t *testing.T) {
	for _, model := range perRank {
		t.Run(model, func(t *testing.T) {
			body := listedWorld(t, model, true, Options{Passes: 2}, file(0, "a", 20), file(1, "b", 20)).cutOf(3)
			p := &body.Datasets[0].Partitions[0]
			p.Excluded = []cut.Exclusion{
				{Pass: 0, Piece: cut.Piece{Segment: 0, Start: 5, End: 8}, Units: 3, Kind: "truncated", Reason: "cut off", When: 1},
				{Pass: 0, Piece: cut.Piece{Segment: 1, Start: 12, End: 20}, Units: 8, Kind: "truncated", Reason: "gone", When: 2},
			}
			if model == "replicated" { // the group's ledger counts them as settled
				p.Segments, p.Complete = []sources.Segment{file(0, "a", 20), file(1, "b", 20)}, true
				p.Passes[0].Ranges = append(p.Passes[0].Ranges, cut.Range{Start: cut.Place{Segment: 1, Offset: 12}, End: cut.Place{Segment: 1, Offset: 20}, Kind: cut.Excluded})
			}
			w := listedWorld(t, model, true, Options{Passes: 2}, file(0, "a", 20), file(1, "b", 20))
			if code, reason := w.restored(body); code != CutOK {
				t.Fatal(code, reason)
			}
			all, total := w.core.Excluded(1, 0, 10)
			if total != 2 || all[1].Start != 12 || all[1].End != 20 || all[1].Reason != "gone" {
				t.Fatalf("excluded are %d ranges, %+v, want the 2 of the cut", total, all)
			}
			w.restart()
			if _, total := w.core.Excluded(1, 0, 10); total != 2 {
				t.Fatalf("after a restart %d ranges are excluded, want 2", total)
			}
			w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: []Join{{Worker: 1, Incarnation: 10, WorldSize: 1, Generation: w.core.Job().Generation}}})
			got := w.rest()
			// The cut has a and the first half of b; the second pass is whole.
			if want := "map[a:[[0 10] [10 20]] b:[[10 12] [0 10] [10 20]]]"; fmt.Sprint(got) != want {
				t.Errorf("granted are %v, want %s", got, want)
			}
			again, _ := w.core.CutBody(uint64(body.ID))
			if n := len(again.Datasets[0].Partitions[0].Excluded); n != 2 {
				t.Errorf("the cut has %d excluded ranges", n)
			}
		})
	}
}

// The order number decides which checkpoint is the newest. It does not begin anew with a
// master that knows nothing, nor with its clock.
func TestWhatIsFrozenAfterACutWasRestoredComesAfterIt(t *testing.T) {
	for _, model := range []string{"replicated", "private", "shared"} {
		body := listedWorld(t, model, true, Options{}, file(0, "a", 100)).cutOf(1)
		if body.Order != 1 {
			t.Fatalf("%s: the first cut has order %d", model, body.Order)
		}
		body.ID, body.Order = 5, 40
		w := listedWorld(t, model, true, Options{}, file(0, "a", 100))
		if code, reason := w.restored(body); code != CutOK {
			t.Fatal(code, reason)
		}
		w.restart()
		w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: []Join{{Worker: 1, Incarnation: 10, WorldSize: 1, Generation: w.core.Job().Generation}}})
		m := &Message{Session: 1, Steps: []StepReport{{Worker: 1, Step: 2}}, Calls: []CutCall{{Worker: 1, ID: 2, Ask: &CutAsk{Cut: 78, Step: 2, Path: "/d"}}}}
		for _, g := range w.grants(1) {
			m.Acks = append(m.Acks, Ack{Token: g.Token, Prefix: g.End, Step: 2})
		}
		w.step(m)
		if next := w.bodies[78]; next == nil || next.Order <= body.Order {
			t.Errorf("%s: after order %d came %+v: %v", model, body.Order, next, w.fx.Replies)
		}
	}
}

// A pass after the first one begins when all segments are known. So a cut that has such a
// pass names all segments, also those from which a private rank has no record. Without them,
// the first pass would end too early on another master.
func TestACutOfALaterPassNamesAllSegments(t *testing.T) {
	a, b := file(0, "a", 20), file(1, "b", 10)
	w := listedWorld(t, Private, true, Options{Passes: 2}, a, b)
	w.step(&Message{Session: 1, Joins: []Join{{Worker: 2, Rank: 1, Incarnation: 11, WorldSize: 2}}})
	first := w.grants(1)
	w.step(&Message{Session: 1, Requests: []LeaseRequest{{ID: 100, Worker: 2, Dataset: 1, Count: 2}}}) // the rest of the first pass
	second := w.grants(1)
	m := &Message{Session: 1, Steps: []StepReport{{Worker: 1, Step: 1}}, Calls: []CutCall{{Worker: 1, ID: 1, Ask: &CutAsk{Cut: 77, Step: 1, Path: "/c"}}}}
	for _, g := range append(first, second...) {
		m.Acks = append(m.Acks, Ack{Token: g.Token, Prefix: g.End, Step: 1})
	}
	w.step(m)
	body := w.bodies[77]
	if body == nil || len(second) != 1 || second[0].Pass != 1 {
		t.Fatalf("%+v, granted %+v", body, second)
	}

	a.ID, b.ID = 5, 6 // listed anew, with other numbers
	w = listedWorld(t, Private, false, Options{Passes: 2}, a, b)
	if code, reason := w.restored(body); code != CutOK {
		t.Fatal(reason)
	}
	want := map[string][][2]int64{"a": {{10, 20}, {10, 20}}, "b": {{0, 10}, {0, 10}}}
	if rest := w.rest(); fmt.Sprint(rest) != fmt.Sprint(want) {
		t.Errorf("of both passes %v comes, not %v", rest, want)
	}

	less := *body // of a version that named only the segments of the rank's records
	less.Datasets = slices.Clone(body.Datasets)
	less.Datasets[0].Partitions = slices.Clone(body.Datasets[0].Partitions)
	q := &less.Datasets[0].Partitions[0]
	q.Segments, q.Complete = q.Segments[:1], false
	w = listedWorld(t, Private, false, Options{Passes: 2}, a, b)
	if code, reason := w.restored(&less); code != CutRefused || !strings.Contains(reason, "not all segments are known") {
		t.Error(code, reason)
	}
}

// A rank goes back to a cut of another master. A cut that the rank has bound here has
// records that others may take from then on. So it is voided, whatever its step.
func TestAPrivateCutWithMoreThanAnAdoptedOneIsVoided(t *testing.T) {
	w := listedWorld(t, Private, true, Options{}, file(0, "a", 40))
	m := &Message{Session: 1, Steps: []StepReport{{Worker: 1, Step: 9}}, Calls: []CutCall{{Worker: 1, ID: 1, Ask: &CutAsk{Cut: 55, Step: 9, Path: "/old"}}}}
	for _, g := range w.grants(1) {
		m.Acks = append(m.Acks, Ack{Token: g.Token, Prefix: g.End, Step: 9})
	}
	w.step(m)
	old := w.bodies[55]

	w = listedWorld(t, Private, true, Options{}, file(0, "a", 40))
	own := w.cutOf(2)
	w.step(&BindCut{uint64(own.ID), "/own"})
	w.step(&Message{Session: 1, Joins: []Join{{Worker: 2, Incarnation: 11, WorldSize: 1}}})
	plan := w.core.PlanRewind(old, nil)
	if len(plan.Voided) != 1 || plan.Voided[0].ID != uint64(own.ID) {
		t.Errorf("a rewind would void %+v", plan.Voided)
	}
	w.step(&Message{Session: 1, Calls: []CutCall{{Worker: 2, ID: 9, Restore: &RestoreCall{Mode: RestoreExact, Cut: old, Path: "/old"}}}})
	if all := w.core.Cuts(); len(all) != 2 || all[0].ID != uint64(own.ID) || all[0].State != CutVoided || all[1].State != CutBound {
		t.Errorf("kept: %+v, answered %v", all, w.fx.Replies)
	}
}

// A master that has lost its state counts the orders of cuts anew, and epochs and steps as
// well. If it is told of the older cuts that lie in the folder, the cuts that it binds from
// then on are newer than those.
func TestWhatIsBoundHereIsNewerThanAnyCutThatLiesThere(t *testing.T) {
	for _, model := range perRank {
		lies := *listedWorld(t, model, true, Options{}, file(0, "a", 100)).cutOf(1)
		lies.ID, lies.Order, lies.Epoch, lies.Step = 5, 40, 30, 1000
		for _, told := range []string{"restore", "ask", "nobody"} {
			w := listedWorld(t, model, true, Options{}, file(0, "a", 100))
			k := &RestoreCall{Mode: RestoreStart}
			ask := &CutAsk{Cut: 77, Step: 1, Path: "/c"}
			switch told {
			case "restore":
				k.After = lies.Order
			case "ask":
				ask.After = lies.Order
			}
			w.step(&Message{Session: 1, Calls: []CutCall{{Worker: 1, ID: 1, Restore: k}}})
			m := &Message{Session: 1, Steps: []StepReport{{Worker: 1, Step: 1}}, Calls: []CutCall{{Worker: 1, ID: 2, Ask: ask}}}
			for _, g := range w.grants(1) {
				m.Acks = append(m.Acks, Ack{Token: g.Token, Prefix: g.End, Step: 1})
			}
			w.step(m)
			w.step(&BindCut{77, "/c"})
			w.restart()
			w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}})
			w.step(&Message{Session: 1, Joins: []Join{{Worker: 2, Incarnation: 11, WorldSize: 1}}})
			w.step(&Message{Session: 1, Calls: []CutCall{{Worker: 2, ID: 3, Restore: &RestoreCall{Cut: &lies, Path: "/lies"}}}})
			want := CutTry
			if told == "nobody" { // the older cuts lie in another folder, so the master is not told of them
				want = CutOK
			}
			i := slices.IndexFunc(w.fx.Replies, func(r Reply) bool { return r.Kind == ReplyCut })
			if i < 0 || w.fx.Replies[i].Cut.Code != want {
				t.Errorf("%s, told by %s: %+v", model, told, w.fx.Replies)
			}
		}
	}
}
