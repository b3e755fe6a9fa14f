package master

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// ledgerOfGone is a shard service of two partitions, and what it was told.
type ledgerOfGone struct {
	kept
	needs   []serve.Need
	noted   []serve.Deletion
	said    []serve.Retention
	cutOff  []int64
	dataset uint32
}

func (l *ledgerOfGone) Segments(_ context.Context, _ uint32, _ int64, _ int) ([]sources.Segment, error) {
	return []sources.Segment{{ID: 0, Start: 5, End: 50}, {ID: 3, Start: 7, End: 70}}, nil
}

func (l *ledgerOfGone) Truncated(_ context.Context, _ uint32, _, _, end int64, _ string) error {
	l.cutOff = append(l.cutOff, end)
	return nil
}
func (l *ledgerOfGone) SetRetention(_ uint32, all []serve.Retention) { l.said = all }
func (l *ledgerOfGone) NoteDeleted(id uint32, found []serve.Deletion) {
	l.dataset, l.noted = id, append(l.noted, found...)
}

// keeper is a source that says of each mark what was set for it.
type keeper struct {
	sources.Source
	says  []sources.Kept
	marks []sources.Mark
	ahead time.Duration
}

func (k *keeper) Keeps(_ context.Context, marks []sources.Mark, ahead time.Duration) ([]sources.Kept, error) {
	k.marks, k.ahead = marks, ahead
	return slices.Clone(k.says), nil
}

var errAway = errors.New("its leader is away")

func never(low int64) sources.Kept {
	return sources.Kept{Low: low, Head: 100, ByAge: sources.Never, Room: sources.Never, Retention: sources.Never}
}

// What is deleted is told of each partition of which it is known, whatever becomes of
// the others.
func TestTheGuardTellsWhatIsDeletedOfWhatIsStillNeeded(t *testing.T) {
	srv := &ledgerOfGone{needs: []serve.Need{
		{Partition: 1, Identity: "k/0", Source: "k/0", Offset: 10, End: 100}, {Partition: 2, Identity: "k/1", Source: "k/1", Offset: 10, End: 100},
		{Partition: 3, Identity: "k/2", Source: "k/2", Offset: 10, End: 100}}}
	w := &watch{srv: srv, id: 9, spec: &dataset.Spec{}, log: slog.New(slog.DiscardHandler), seen: map[uint32]*partitionWatch{}, foresees: true}
	src := &keeper{says: []sources.Kept{never(30), {Err: errAway}, {Err: errAway, Gone: true}}}
	if err := w.round(t.Context(), src, srv.needs); !errors.Is(err, errAway) {
		t.Errorf("%v", err)
	}
	want := []serve.Deletion{{Source: "k/0", Low: 30}, {Source: "k/2", All: true}}
	if srv.dataset != 9 || !slices.Equal(srv.noted, want) {
		t.Errorf("told %+v of dataset %d, want %+v", srv.noted, srv.dataset, want)
	}
	if len(srv.said) != 1 || !slices.Equal(srv.cutOff, []int64{30}) {
		t.Errorf("retention of %+v, truncated to %v", srv.said, srv.cutOff)
	}
}

// A dataset that is done, or dealt out to virtual ranks, is not read as it lies: only
// where its segments begin is asked for, once for all ranks, and nothing is foretold.
func TestOfWhatIsNotForeseenOnlyTheBeginningsOfItsSegmentsAreAsked(t *testing.T) {
	srv := &ledgerOfGone{needs: []serve.Need{
		{Partition: 1, Identity: "k#0/2", Source: "k", Offset: 5, End: 70}, {Partition: 2, Identity: "k#1/2", Source: "k", Offset: 5, End: 70}}}
	w := &watch{srv: srv, id: 9, spec: &dataset.Spec{}, log: slog.New(slog.DiscardHandler), seen: map[uint32]*partitionWatch{}}
	src := &keeper{says: []sources.Kept{never(5), never(20)}}
	if err := w.round(t.Context(), src, srv.needs); err != nil {
		t.Fatal(err)
	}
	marks := []sources.Mark{{Partition: "k", Position: sources.Position{Segment: 0, Offset: 5}}, {Partition: "k", Position: sources.Position{Segment: 3, Offset: 7}}}
	if !slices.Equal(src.marks, marks) || src.ahead >= 0 {
		t.Errorf("asked for %+v, %v ahead", src.marks, src.ahead)
	}
	want := []serve.Deletion{{Source: "k", Segment: 0, Low: 5}, {Source: "k", Segment: 3, Low: 20}}
	if !slices.Equal(srv.noted, want) || srv.said != nil || srv.cutOff != nil {
		t.Errorf("told %+v, retention %+v, truncated %v", srv.noted, srv.said, srv.cutOff)
	}
}
