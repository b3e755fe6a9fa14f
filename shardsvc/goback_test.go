package shardsvc

import (
	"slices"
	"testing"

	"github.com/headrace/headrace/sources"
)

// TestWhatTheModelHasIsNotExcludedAnyMore: a cut has all of [0, 10). The master that goes back
// to it has excluded [0, 10), because the source has lost it. The model of the cut was trained
// on these records, so they count as acked, and later cuts list them.
func TestWhatTheModelHasIsNotExcludedAnyMore(t *testing.T) {
	begin := func(lost bool) *world {
		w := newWorld(t, Config{Job: "j", Model: Replicated})
		w.step(&ApplyDataset{ID: 1, Name: "d", Options: Options{Passes: 1, Initial: 10, Min: 10, Max: 10, Target: Second, GoOnAfterLoss: true, Unit: "records"}})
		w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "p"})
		w.step(&PartitionsListed{Dataset: 1})
		w.step(&AddSegments{Partition: 1, Complete: true, Segments: []sources.Segment{{ID: 0, Start: 0, End: 10, Sealed: true}}})
		w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: []Join{{Worker: 1, Incarnation: 6, WorldSize: 1, Resume: ResumeStart}}})
		w.step(&Message{Session: 1, Requests: []LeaseRequest{{ID: 1, Worker: 1, Dataset: 1, Count: 1}}})
		var token Token
		for _, r := range w.fx.Replies {
			if r.Kind == ReplyGrant {
				token = r.Token
			}
		}
		if lost {
			w.step(&Message{Session: 1, Failures: []ReadFailure{{Token: token, Kind: "truncated", Permanent: true, Lost: &LostRange{0, 0, 10}}}})
		} else {
			w.step(&Message{Session: 1, Acks: []Ack{{Token: token, Prefix: 10, Step: 1}}, Steps: []StepReport{{Worker: 1, Step: 1}},
				Calls: []CutCall{{Worker: 1, ID: 1, Ask: &CutAsk{Cut: 7, Step: 1, Path: "/ck"}}}})
		}
		return w
	}
	body := begin(false).bodies[7]
	if body == nil || body.Records().Untold != 10 {
		t.Fatalf("the cut is %+v, want one with 10 acked units whose records nobody counted", body)
	}
	w := begin(true)
	if d, _ := w.core.Dataset(1); d.Counts.Excluded != 10 {
		t.Fatalf("after the loss: counts %+v, want 10 excluded units", d.Counts)
	}
	w.step(&Rewind{Cut: body, Path: "/ck"}) // checks the invariants
	if !slices.ContainsFunc(w.fx.Reports, func(r Report) bool { return r.Kind == ReportRewound }) {
		t.Fatalf("not rewound: %+v", w.fx.Reports)
	}
	if d, _ := w.core.Dataset(1); d.Counts.Excluded != 0 || d.Counts.Acked != 10 || d.Records.Untold != 10 {
		t.Errorf("after the rewind: counts %+v, records %+v; want 10 units acked, none excluded, 10 untold", d.Counts, d.Records)
	}
	if all, total := w.core.Excluded(1, 0, 10); total != 0 {
		t.Errorf("after the rewind these ranges are still excluded: %+v", all)
	}
	w.restart()
}
