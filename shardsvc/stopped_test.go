package shardsvc

import (
	"strings"
	"testing"

	"github.com/headrace/headrace/sources"
)

// A reader of partition a meets a loss in its lease [0, 100), so the dataset stops. Then the
// guard reports [0, 150) of a and [0, 40) of b. The reason names both ranges in full.
func TestTheReasonOfAStoppedDatasetNamesAllThatIsLost(t *testing.T) {
	w := newWorld(t, Config{Job: "j", Model: Shared})
	w.step(&ApplyDataset{ID: 1, Name: "d", Options: Options{Passes: 1, Initial: 100, Min: 100, Max: 100, Target: Second, Unit: sources.Records}})
	w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "a"})
	w.step(&AddPartition{Dataset: 1, Number: 2, Identity: "b"})
	w.step(&AddPartition{Dataset: 1, Number: 3, Identity: "c"})
	w.step(&PartitionsListed{Dataset: 1})
	for _, no := range []PartitionNo{1, 2, 3} {
		w.step(&AddSegments{Partition: no, Complete: true, Segments: []sources.Segment{{End: 200, Sealed: true}}})
	}
	w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: []Join{{Worker: 1, Incarnation: 6, WorldSize: 1, Resume: ResumeStart}}})
	grants := w.grants(2)
	if len(grants) != 2 || grants[0].Partition+grants[1].Partition != 3 {
		t.Fatalf("one lease of a and one of b are expected, got %+v", grants)
	}
	reason := func() string { d, _ := w.core.Dataset(1); return d.Reason }
	for _, g := range grants {
		if g.Partition == 1 {
			w.step(&Message{Session: 1, Failures: []ReadFailure{{Token: g.Token, Kind: "truncated", Permanent: true, Message: "a begins at 150", Lost: &LostRange{0, 0, 100}}}})
		} else {
			w.step(&Message{Session: 1, Releases: []Release{{Token: g.Token}}})
		}
	}
	if got := reason(); !strings.HasPrefix(got, "partition a pass 0: [0, 100) of segment 0 is lost at the source (truncated): a begins at 150; to go on without it") {
		t.Fatalf("after the reader's loss the reason is %q", got)
	}
	for range 2 { // the guard reports a loss at each look
		w.step(&Truncated{Partition: 1, End: 150, Reason: "a begins at 150, says the guard", When: 5})
		w.step(&Truncated{Partition: 2, End: 40, Reason: "b begins at 40", When: 6})
	}
	const want = "partition a pass 0: [0, 150) of segment 0 is lost at the source (truncated): a begins at 150, says the guard; " +
		"partition b pass 0: [0, 40) of segment 0 is lost at the source (truncated): b begins at 40"
	if got := reason(); !strings.HasPrefix(got, want) {
		t.Fatalf("after the guard's report the reason is %q, want %q first", got, want)
	}
	w.step(&Truncated{Partition: 3, End: 9, Reason: "c begins at 9", When: 7}) // nobody has begun to read c
	if got := reason(); !strings.HasPrefix(got, want+"; partition c pass 0: [0, 9) of segment 0 is lost") {
		t.Fatalf("after the loss in c the reason is %q, want that of a and b, then c", got)
	}
	w.restart()
	if got := reason(); !strings.HasPrefix(got, want) {
		t.Fatalf("after a restart the reason is %q, want %q first", got, want)
	}
}

// A source deletes [0, 100), then [0, 150). Together they are one excluded range, [0, 150). It
// has the newest reason, "begins at 150", because only that one is true of the whole range.
func TestTheReasonOfAnExcludedRangeIsAboutAllOfIt(t *testing.T) {
	w := newWorld(t, Config{Job: "j", Model: Shared})
	w.step(&ApplyDataset{ID: 1, Name: "d", Options: Options{Passes: 1, Initial: 10, Min: 10, Max: 10, Target: Second, GoOnAfterLoss: true, Unit: sources.Records}})
	w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "a"})
	w.step(&PartitionsListed{Dataset: 1})
	w.step(&AddSegments{Partition: 1, Complete: true, Segments: []sources.Segment{{End: 200, Sealed: true}}})
	w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: []Join{{Worker: 1, Incarnation: 6, WorldSize: 1, Resume: ResumeStart}}})
	token := w.grants(1)[0].Token
	w.step(&Truncated{Partition: 1, End: 100, Reason: "it begins at 100", When: 5}) // all but the lease
	w.step(&Truncated{Partition: 1, End: 150, Reason: "it begins at 150", When: 6})
	w.step(&Message{Session: 1, Failures: []ReadFailure{{Token: token, Kind: "truncated", Permanent: true, Message: "it begins at 100", Lost: &LostRange{0, 0, 10}}}})
	all, _ := w.core.Excluded(1, 0, 10)
	if len(all) != 1 || all[0].Start != 0 || all[0].End != 150 || all[0].Reason != "it begins at 150" {
		t.Errorf("excluded are %+v", all)
	}
}
