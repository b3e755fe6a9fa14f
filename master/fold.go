package master

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// Some sources can do without the segments that were read long ago (Kind.Forgets): a folder
// that grows for years. The shard service then folds them, so that memory and store do not
// grow with all that was ever read. Some also delete what was read (Kind.Deletes).

const (
	defaultFoldEvery = time.Minute
	foldFirst        = time.Second

	// If a spec keeps read segments for a short time only, they are deleted more often than
	// each minute: each fourth of that time, but at most once a second.
	deleteShare   = 4
	deleteAtLeast = time.Second
)

// foldEvery returns how often segments are folded and deleted, or 0: never.
func (l *listing) foldEvery() time.Duration {
	switch k := l.spec.Kind(); {
	case !k.Forgets && !k.Deletes:
		return 0
	case l.cfg.FoldEvery > 0:
		return l.cfg.FoldEvery
	case k.Deletes:
		return min(defaultFoldEvery, max(deleteAtLeast, l.spec.Source.Traits().DeletesAfter/deleteShare))
	}
	return defaultFoldEvery
}

// fold has the source delete the segments that nothing needs. Then it asks which other segments
// the source can do without, and has these folded. It also reports all segments that are folded
// or deleted, because going back to the start would miss their records. more says that one call
// had no time to delete everything.
func (f *following) fold(ctx context.Context) (more bool, err error) {
	deleter, forgetter, err := f.cleaners()
	if err != nil {
		return false, err
	}
	ds, err := f.state(ctx)
	if err != nil || ds == nil {
		return false, err
	}
	marks, err := f.srv.RetainMarks(ctx, f.id)
	if err != nil {
		return false, err
	}
	var gone []serve.Deletion
	for i := range ds.Partitions {
		p := &ds.Partitions[i]
		segs, err := f.srv.Segments(ctx, p.Number, -1, 0)
		if err != nil {
			return false, err
		}
		at := slices.IndexFunc(marks, func(m sources.Mark) bool { return m.Partition == p.Source })
		var deleted []int64
		if at >= 0 && deleter != nil {
			found := f.deletePartition(ctx, deleter, p, segs, &marks[at].Position)
			deleted, more = found.Gone, more || found.More
		}
		if at >= 0 && forgetter != nil {
			if segs, err = f.foldPartition(ctx, forgetter, p, segs, marks[at].Position); err != nil {
				return false, err
			}
		}
		for _, g := range segs {
			if _, is := slices.BinarySearch(deleted, g.ID); is || g.Sealed && len(g.Locator) == 0 {
				gone = append(gone, serve.Deletion{Source: string(p.Source), Segment: g.ID, Low: g.End})
			}
		}
	}
	switch {
	case !f.looked: // the source has not looked yet, so earlier reports stay true
		f.srv.NoteDeleted(f.id, gone)
	case !f.told || !slices.Equal(gone, f.gone):
		f.srv.SetDeleted(f.id, gone)
		f.told, f.gone = true, gone
	}
	return more, nil
}

// cleaners returns the source as a Deleter and as a Forgetter. Each is nil if the source's
// kind does not say that it can do that.
func (f *following) cleaners() (sources.Deleter, sources.Forgetter, error) {
	k := f.spec.Kind()
	deleter, deletes := f.src.(sources.Deleter)
	forgetter, forgets := f.src.(sources.Forgetter)
	switch {
	case k.Deletes && !deletes:
		return nil, nil, errors.New("its kind says that it deletes what was read, and it cannot")
	case k.Forgets && !forgets:
		return nil, nil, errors.New("its kind says that it can do without old segments, and it cannot")
	}
	if !k.Deletes {
		deleter = nil
	}
	if !k.Forgets {
		forgetter = nil
	}
	return deleter, forgetter, nil
}

// deletePartition has the source delete segments of a partition that end at or before below, as
// far as the spec allows. An error is logged, and training goes on. The segments are noted before
// they are deleted: from then on a rewind that needs them is refused. Then the retain mark is
// read again, because a rewind may have come before the note. If the mark is lower now, below is
// set to it.
func (f *following) deletePartition(ctx context.Context, from sources.Deleter, p *serve.Partition, segs []sources.Segment, below *sources.Position) sources.Deletions {
	found, err := from.Delete(ctx, p.Identity, segs, *below, func(due []int64) (sources.Position, error) {
		var soon []serve.Deletion
		for _, g := range segs {
			if _, is := slices.BinarySearch(due, g.ID); is {
				soon = append(soon, serve.Deletion{Source: string(p.Source), Segment: g.ID, Low: g.End})
			}
		}
		f.srv.NoteDeleted(f.id, soon)
		f.told = false // fewer may be deleted in the end; fold then corrects the report
		marks, err := f.srv.RetainMarks(ctx, f.id)
		if err != nil {
			return sources.Position{}, err
		}
		at := slices.IndexFunc(marks, func(m sources.Mark) bool { return m.Partition == p.Source })
		if at < 0 {
			return sources.Position{}, errors.New("the dataset has no retain mark for this partition any more")
		}
		if marks[at].Position.Compare(*below) < 0 {
			*below = marks[at].Position
		}
		return *below, nil
	})
	if err != nil && ctx.Err() == nil {
		f.log.Warn("segments that nothing needs could not be deleted; trying again", "error", err, "in", f.foldEvery())
	}
	return found
}

// foldPartition folds the segments of a partition that end at or before below and that the
// source can do without. It returns the partition's segments as they are then.
func (f *following) foldPartition(ctx context.Context, from sources.Forgetter, p *serve.Partition, segs []sources.Segment, below sources.Position) ([]sources.Segment, error) {
	before, needed, err := from.Forget(ctx, p.Identity, segs, below)
	if err != nil {
		f.log.Warn("the names of old files are not forgotten; it is tried again", "error", err, "in", f.foldEvery())
		return segs, nil
	}
	if !foldable(segs, before, needed) {
		return segs, nil
	}
	if err := f.srv.Fold(ctx, p.Number, before, needed); err != nil {
		return nil, err
	}
	return f.srv.Segments(ctx, p.Number, -1, 0)
}

// foldable says whether there is something to fold: a segment that is not needed and still has
// a locator. A folded segment has none.
func foldable(segs []sources.Segment, before int64, needed []int64) bool {
	return slices.ContainsFunc(segs, func(g sources.Segment) bool {
		_, need := slices.BinarySearch(needed, g.ID)
		return g.ID < before && !need && len(g.Locator) > 0
	})
}
