package master

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/proof/memsource"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// folder is a shard service with one partition, which notes what is folded.
type folder struct {
	ledger
	segs   []sources.Segment
	folds  []string
	gone   []serve.Deletion
	marked sources.Position
}

func (f *folder) Datasets(context.Context) ([]serve.Dataset, error) {
	return []serve.Dataset{{ID: 3, Spec: &dataset.Spec{Source: &memsource.Spec{}}, Partitions: []serve.Partition{{Number: 5, Identity: "mem:x", Source: "mem:x"}}}}, nil
}

func (f *folder) RetainMarks(context.Context, uint32) ([]sources.Mark, error) {
	return []sources.Mark{{Partition: "mem:x", Position: f.marked}}, nil
}

func (f *folder) Segments(context.Context, uint32, int64, int) ([]sources.Segment, error) {
	return f.segs, nil
}

func (f *folder) Fold(_ context.Context, partition uint32, before int64, needed []int64) error {
	f.folds = append(f.folds, fmt.Sprintf("%d before %d but %v", partition, before, needed))
	return nil
}

func (f *folder) ForgetDeleted(uint32)                        { f.gone = nil }
func (f *folder) NoteDeleted(_ uint32, some []serve.Deletion) { f.gone = append(f.gone, some...) }

// forgets is a source that needs segment 2 of those that are settled.
type forgets struct {
	sources.Source
	below sources.Position
}

func (f *forgets) Forget(_ context.Context, _ sources.PartitionID, segs []sources.Segment, below sources.Position) (int64, []int64, error) {
	f.below = below
	return 4, []int64{2}, nil
}

func TestSegmentsThatASourceForgetsAreFoldedOnceAndTold(t *testing.T) {
	srv, src := &folder{marked: sources.Position{Segment: 4}}, &forgets{}
	f := &following{listing: &listing{srv: srv, id: 3, alone: true, log: slog.New(slog.DiscardHandler), spec: &dataset.Spec{Source: &memsource.Spec{}}}, src: src}
	segment := func(id int64, locator string) sources.Segment {
		return sources.Segment{ID: id, Start: 0, End: 10, Sealed: true, Locator: []byte(locator)}
	}
	srv.segs = []sources.Segment{segment(1, "a"), segment(2, "b"), segment(3, "c"), segment(4, "d")}
	if err := f.fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(srv.folds) != "[5 before 4 but [2]]" || src.below != srv.marked || len(srv.gone) != 0 {
		t.Errorf("folded %v of those below %v, and told %+v", srv.folds, src.below, srv.gone)
	}
	srv.segs = []sources.Segment{segment(1, ""), segment(2, "b"), segment(3, ""), segment(4, "d")}
	if err := f.fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(srv.folds) != 1 {
		t.Errorf("nothing is left to fold: %v", srv.folds)
	}
	if fmt.Sprint(srv.gone) != fmt.Sprint([]serve.Deletion{{Source: "mem:x", Segment: 1, Low: 10}, {Source: "mem:x", Segment: 3, Low: 10}}) {
		t.Errorf("told %+v", srv.gone)
	}
}
