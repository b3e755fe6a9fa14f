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

// ledgerOfGone is a shard service of two partitions. It notes what it is told.
type ledgerOfGone struct {
	kept
	needs   []serve.Need
	noted   []serve.Deletion
	said    []serve.Retention
	cutOff  []int64
	dataset uint32
	sealed  bool
}

func (l *ledgerOfGone) Segments(_ context.Context, _ uint32, _ int64, _ int) ([]sources.Segment, error) {
	return []sources.Segment{{ID: 0, Start: 5, End: 50}, {ID: 3, Start: 7, End: 70, Sealed: l.sealed}}, nil
}

func (l *ledgerOfGone) Truncated(_ context.Context, _ uint32, _, _, end int64, _ string) error {
	l.cutOff = append(l.cutOff, end)
	return nil
}
func (l *ledgerOfGone) SetRetention(_ uint32, all []serve.Retention) { l.said = all }
func (l *ledgerOfGone) NoteDeleted(id uint32, found []serve.Deletion) {
	l.dataset, l.noted = id, append(l.noted, found...)
}

// keeper is a source that answers each mark with the value in says.
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
	return sources.Kept{Low: sources.Position{Offset: low}, Head: sources.Position{Offset: 100}, ByAge: sources.Never, Room: sources.Never, Retention: sources.Never}
}

// The guard reports the deletions of each partition whose state it knows, even if it does not know the
// state of another one.
func TestTheGuardTellsWhatIsDeletedOfWhatIsStillNeeded(t *testing.T) {
	srv := &ledgerOfGone{needs: []serve.Need{
		{Partition: 1, Identity: "k/0", Source: "k/0", Offset: 10, End: 100}, {Partition: 2, Identity: "k/1", Source: "k/1", Offset: 10, End: 100},
		{Partition: 3, Identity: "k/2", Source: "k/2", Offset: 10, End: 100}}}
	w := &watch{srv: srv, id: 9, spec: &dataset.Spec{}, log: slog.New(slog.DiscardHandler), seen: map[uint32]*partitionWatch{}, foresees: true}
	src := &keeper{says: []sources.Kept{never(30), {Err: errAway}, {Err: errAway, Gone: true}}}
	if err := w.round(t.Context(), src, srv.needs); !errors.Is(err, errAway) {
		t.Errorf("the round returned %v, want that a leader is away", err)
	}
	want := []serve.Deletion{{Source: "k/0", Low: 30}, {Source: "k/2", All: true}}
	if srv.dataset != 9 || !slices.Equal(srv.noted, want) {
		t.Errorf("noted are the deletions %+v of dataset %d, want %+v of dataset 9", srv.noted, srv.dataset, want)
	}
	if len(srv.said) != 1 || !slices.Equal(srv.cutOff, []int64{30}) {
		t.Errorf("the retention told is %+v and the truncations end at %v, want one and 30", srv.said, srv.cutOff)
	}
}

// comparing is a keeper whose comparison fails.
type comparing struct {
	keeper
	compares int
}

func (c *comparing) Compare(context.Context) ([]sources.Replaced, error) {
	c.compares++
	return nil, &sources.Temporary{Err: errAway}
}

// The guard reports what it knows even if the messages of a queue cannot be compared. It does not
// compare input without an end, because the listing does.
func TestTheGuardTellsWhatItKnowsAlsoIfMessagesCannotBeCompared(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		srv := &ledgerOfGone{sealed: sealed, needs: []serve.Need{{Partition: 1, Identity: "k/0", Source: "k/0", Offset: 10, End: 100}}}
		w := &watch{srv: srv, id: 9, spec: &dataset.Spec{}, log: slog.New(slog.DiscardHandler), seen: map[uint32]*partitionWatch{}, foresees: true}
		src := &comparing{keeper: keeper{says: []sources.Kept{never(30)}}}
		err := w.round(t.Context(), src, srv.needs)
		if errors.Is(err, errAway) != sealed || silent(err) != sealed || (src.compares == 1) != sealed {
			t.Errorf("sealed %v: the round returned %v after %d comparisons, want a comparison only if sealed", sealed, err, src.compares)
		}
		if len(srv.said) != 1 || len(srv.noted) != 1 || !slices.Equal(srv.cutOff, []int64{30}) {
			t.Errorf("sealed %v: retention %+v, deletions %+v, truncations %v; want one of each", sealed, srv.said, srv.noted, srv.cutOff)
		}
	}
}

// For a dataset that is done or has virtual ranks, deletions are not forecast. The guard asks only where
// the segments begin, once for all virtual ranks.
func TestOfWhatIsNotForeseenOnlyTheBeginningsOfItsSegmentsAreAsked(t *testing.T) {
	srv := &ledgerOfGone{needs: []serve.Need{
		{Partition: 1, Identity: "k#0/2", Source: "k", Offset: 5, End: 70}, {Partition: 2, Identity: "k#1/2", Source: "k", Offset: 5, End: 70}}}
	w := &watch{srv: srv, id: 9, spec: &dataset.Spec{}, log: slog.New(slog.DiscardHandler), seen: map[uint32]*partitionWatch{}}
	src := &keeper{says: []sources.Kept{never(5), never(20)}}
	src.says[1].Low.Segment = 3
	if err := w.round(t.Context(), src, srv.needs); err != nil {
		t.Fatal(err)
	}
	marks := []sources.Mark{{Partition: "k", Position: sources.Position{Segment: 0, Offset: 5}}, {Partition: "k", Position: sources.Position{Segment: 3, Offset: 7}}}
	if !slices.Equal(src.marks, marks) || src.ahead >= 0 {
		t.Errorf("the source was asked for %+v, %v ahead, want %+v and no forecast", src.marks, src.ahead, marks)
	}
	want := []serve.Deletion{{Source: "k", Segment: 0, Low: 5}, {Source: "k", Segment: 3, Low: 20}}
	if !slices.Equal(srv.noted, want) || srv.said != nil || srv.cutOff != nil {
		t.Errorf("deletions %+v, retention %+v, truncations %v; want only the deletions %+v", srv.noted, srv.said, srv.cutOff, want)
	}
}

// A source may delete its segments one by one. Then each deleted segment is reported, and so is
// the missing beginning of the first segment that is still there.
func TestDeletedSegmentsAreToldOneByOne(t *testing.T) {
	srv := &ledgerOfGone{needs: []serve.Need{{Partition: 1, Identity: "k", Source: "k", Segment: 0, Offset: 30, End: 70}}}
	w := &watch{srv: srv, id: 9, spec: &dataset.Spec{}, log: slog.New(slog.DiscardHandler), seen: map[uint32]*partitionWatch{}, foresees: true}
	k := never(20)
	k.Low.Segment, k.Head = 3, sources.Position{Segment: 3, Offset: 70}
	if err := w.round(t.Context(), &keeper{says: []sources.Kept{k}}, srv.needs); err != nil {
		t.Fatal(err)
	}
	want := []serve.Deletion{{Source: "k", Segment: 0, Low: 50}, {Source: "k", Segment: 3, Low: 20}}
	if !slices.Equal(srv.noted, want) || !slices.Equal(srv.cutOff, []int64{50, 20}) {
		t.Errorf("deletions %+v, truncations to %v; want %+v, 50 and 20", srv.noted, srv.cutOff, want)
	}
	if len(srv.said) != 1 || srv.said[0].Records != 0 || srv.said[0].Left != 0 {
		t.Errorf("the retention told is %+v, want one with no record and no time left", srv.said)
	}
}

func TestARulerMeasuresOverSegmentsAndGoesOnWhenOldOnesAreForgotten(t *testing.T) {
	segs := []sources.Segment{{ID: 2, Start: 5, End: 50}, {ID: 7, Start: 0, End: 0}, {ID: 9, Start: 100, End: 130}}
	r, fresh := ruler{}.next(segs)
	if !fresh {
		t.Error("the first ruler must say that it is not comparable with an earlier one")
	}
	at := func(r ruler, segment, offset int64) int64 {
		return r.at(sources.Position{Segment: segment, Offset: offset})
	}
	later, fresh := r.next(append(slices.Clone(segs[2:]), sources.Segment{ID: 11, Start: 0, End: 10}))
	if fresh || at(r, 2, 5) != 5 || at(r, 2, 40) != 40 || at(r, 9, 110) != 60 || at(later, 9, 110) != 60 || at(later, 11, 4) != 84 || at(r, 11, 4) != 80 || at(r, 1, 0) != 5 {
		t.Errorf("the rulers measure wrong: %v, and after segments were forgotten %v", r, later)
	}
	pieces := r.pieces(sources.Position{Segment: 2, Offset: 48}, sources.Position{Segment: 9, Offset: 101})
	if want := []sources.Range{{Segment: 2, Start: 48, End: 50}, {Segment: 9, Start: 100, End: 101}}; !slices.Equal(pieces, want) {
		t.Errorf("the pieces are %v, want %v", pieces, want)
	}
}
