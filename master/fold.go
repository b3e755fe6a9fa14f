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
// grow with all that was ever read.

const (
	defaultFoldEvery = time.Minute
	foldFirst        = time.Second
)

// foldEvery returns how often segments are folded, or 0: never.
func (l *listing) foldEvery() time.Duration {
	switch {
	case !l.spec.Kind().Forgets:
		return 0
	case l.cfg.FoldEvery > 0:
		return l.cfg.FoldEvery
	}
	return defaultFoldEvery
}

// fold asks the source which segments it can do without, and has them folded. It also says
// which are folded, now or before: going back to the start would miss their records.
func (f *following) fold(ctx context.Context) error {
	forgetter, ok := f.src.(sources.Forgetter)
	if !ok {
		return errors.New("its kind says that it can do without old segments, and it cannot")
	}
	ds, err := f.state(ctx)
	if err != nil || ds == nil {
		return err
	}
	marks, err := f.srv.RetainMarks(ctx, f.id)
	if err != nil {
		return err
	}
	var gone []serve.Deletion
	for i := range ds.Partitions {
		p := &ds.Partitions[i]
		segs, err := f.srv.Segments(ctx, p.Number, -1, 0)
		if err != nil {
			return err
		}
		if at := slices.IndexFunc(marks, func(m sources.Mark) bool { return m.Partition == p.Source }); at >= 0 {
			if segs, err = f.foldPartition(ctx, forgetter, p, segs, marks[at].Position); err != nil {
				return err
			}
		}
		for _, g := range segs {
			if g.Sealed && len(g.Locator) == 0 {
				gone = append(gone, serve.Deletion{Source: string(p.Source), Segment: g.ID, Low: g.End})
			}
		}
	}
	f.srv.ForgetDeleted(f.id)
	f.srv.NoteDeleted(f.id, gone)
	return nil
}

// foldPartition folds those of a partition's segments that end at or before below and that
// the source can do without. It returns the segments after that.
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

// foldable says whether any of the segments that are not needed has a locator: else all of
// them were folded before.
func foldable(segs []sources.Segment, before int64, needed []int64) bool {
	return slices.ContainsFunc(segs, func(g sources.Segment) bool {
		_, need := slices.BinarySearch(needed, g.ID)
		return g.ID < before && !need && len(g.Locator) > 0
	})
}
