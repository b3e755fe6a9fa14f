package master

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/proof/memsource"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// goesOn is a source whose open segment 7 was deleted with its records. It has segment 9 now.
type goesOn struct{ sources.Source }

func (goesOn) Segments(context.Context, sources.PartitionID, int64, int) ([]sources.Segment, error) {
	return []sources.Segment{{ID: 9, End: 4}}, nil
}

// numbered is a source whose segments have numbers of its own.
type numbered struct {
	dataset.Part
	kind sources.Kind
}

func (n numbered) Kind() sources.Kind { return n.kind }

// added is a shard service that notes which segments were added.
type added struct {
	ledger
	after int64
	segs  []sources.Segment
}

func (a *added) AddSegments(_ context.Context, _ uint32, after int64, segs []sources.Segment, _ bool) error {
	a.after, a.segs = after, segs
	return nil
}

// A segment that was deleted before its end was seen stops the dataset, and the reason says what
// is lost. With on_loss: continue the next segments are added instead. Adding them seals the
// deleted segment at its known end. Its reader then finds its records missing, and excludes them.
func TestASegmentThatWasDeletedBeforeItsEndWasSeenIsToldOrPassed(t *testing.T) {
	for _, onLoss := range []string{"stop", "continue"} {
		srv := &added{}
		f := &following{listing: &listing{srv: srv, log: slog.New(slog.DiscardHandler), spec: &dataset.Spec{Source: &memsource.Spec{}, OnLoss: onLoss}}, src: goesOn{}}
		p := &serve.Partition{Number: 1, Label: "clicks", LastSegment: 7, Head: 30}
		head, err := f.reaches(t.Context(), p, sources.Bounds{Head: sources.Position{Segment: 9, Offset: 4}}, false)
		if head != nil {
			t.Errorf("on_loss: %s: the core was told the head %+v, want none", onLoss, head)
		}
		if onLoss == "continue" {
			if err != nil || srv.after != 7 || len(srv.segs) != 1 || srv.segs[0].ID != 9 {
				t.Errorf("the segments %+v were added after %d (%v), want segment 9 after 7", srv.segs, srv.after, err)
			}
			continue
		}
		if err == nil || len(srv.segs) > 0 {
			t.Fatalf("the dataset goes on: error %v, segments added %+v", err, srv.segs)
		}
		for _, part := range []string{"segment 7", "offset 30", "on_loss: continue"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
	}
}

// A restored checkpoint has put partition 2 in the place of partition 1. The source of this listing has
// counted the segments of partition 1. It must be opened again, because its next numbers would mean
// other segments in partition 2.
func TestAPartitionThatARestoreBroughtIsNotListedByTheSourceOfTheOneBefore(t *testing.T) {
	kind := (&memsource.Spec{}).Kind()
	kind.Numbers = true
	for _, c := range []struct {
		number uint32
		last   int64
		want   error
	}{
		{1, 7, nil},
		{1, 8, errMoved}, // the restored table of the same partition is longer
		{2, 7, errMoved},
	} {
		srv := &added{}
		f := &following{src: goesOn{}, listing: &listing{srv: srv, log: slog.New(slog.DiscardHandler), last: map[uint32]int64{1: 7},
			spec: &dataset.Spec{Source: numbered{&memsource.Spec{}, kind}}}}
		err := f.listOn(t.Context(), &serve.Partition{Number: c.number, LastSegment: c.last, NeedsSegments: true})
		if !errors.Is(err, c.want) || (len(srv.segs) > 0) != (c.want == nil) {
			t.Errorf("partition %d, last segment %d: the listing returned %v and added %+v, want %v", c.number, c.last, err, srv.segs, c.want)
		}
	}
}
