package master

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// Partitions of some live sources have several segments (Kind.Rolls). The last one grows
// until the source seals it and begins another: a Pulsar ledger rolls over, a chunk is
// appended. The shard service must get the final end of a segment before the next segment is
// added, because adding a segment seals the one before at its known end. Example: segment 3
// is known to 80 and was sealed at 100. If segment 4 were added first, [80, 100) of segment
// 3 would never be read.

// atOnce is how many segments of a partition are asked for at a time.
func (l *listing) atOnce() int {
	if l.spec.Kind().Rolls {
		return listAtOnce
	}
	return 1
}

// listOn lists more of a partition whose last known segment is sealed, a window ahead
// of the plan.
func (f *following) listOn(ctx context.Context, p *serve.Partition) error {
	if f.spec.Kind().Pushed || !f.wanted(p) {
		return nil
	}
	// A checkpoint that was restored may have put another partition in the place of this one:
	// then its number is not known here.
	if last, known := f.last[p.Number]; (!known || last != p.LastSegment) && f.spec.Kind().Numbers {
		return errMoved
	}
	f.last[p.Number] = p.LastSegment
	segs, err := f.src.Segments(ctx, p.Identity, p.LastSegment, f.atOnce())
	f.looked = f.looked || err == nil
	if err != nil || len(segs) == 0 {
		return err
	}
	if err := f.srv.AddSegments(ctx, p.Number, p.LastSegment, segs, false); err != nil {
		return err
	}
	f.last[p.Number] = segs[len(segs)-1].ID
	return nil
}

// rolled seals the last known segment of a partition that goes on in another one, and
// lists what comes after it.
func (f *following) rolled(ctx context.Context, p *serve.Partition) error {
	segs, err := f.src.Segments(ctx, p.Identity, p.LastSegment-1, f.atOnce())
	if err != nil || len(segs) == 0 {
		return err
	}
	if segs[0].ID != p.LastSegment {
		return f.vanished(ctx, p, segs)
	}
	last := segs[0]
	if !last.Sealed {
		return nil // the source will show it as sealed a moment later
	}
	if last.End < p.Head && !f.fell(p, sources.Position{Segment: last.ID, Offset: last.End}) {
		return nil
	}
	sealed := serve.Head{Partition: p.Number, Segment: last.ID, End: last.End, Sealed: true, Fallen: last.End < p.Head}
	if err := f.srv.Heads(ctx, []serve.Head{sealed}); err != nil {
		return err
	}
	delete(f.lower, p.Identity)
	f.log.Debug("a segment is sealed", "partition", p.Label, "segment", last.Name, "end", last.End)
	if len(segs) == 1 {
		return nil
	}
	return f.srv.AddSegments(ctx, p.Number, p.LastSegment, segs[1:], false)
}

// vanished handles a last known segment that the source deleted before its end was seen.
func (f *following) vanished(ctx context.Context, p *serve.Partition, segs []sources.Segment) error {
	if f.spec.OnLoss != "continue" {
		return fmt.Errorf("segment %d was deleted before its end was seen: its records from offset %d on are lost, and nobody can say how many they are. "+
			"To go on without them, set on_loss: continue and resume the dataset", p.LastSegment, p.Head)
	}
	f.log.Error("a segment was deleted before its end was seen; its records are lost, and nobody can say how many they are",
		"partition", p.Label, "segment", p.LastSegment, "lost_from", p.Head)
	return f.srv.AddSegments(ctx, p.Number, p.LastSegment, segs, false)
}

// begin tells a source that can retain records to keep these partitions, from where the
// dataset begins. It is called before any segment is listed, so everything planned is kept.
func (l *listing) begin(ctx context.Context, src sources.Source, parts []sources.PartitionID) error {
	if !l.spec.Kind().Retains || len(parts) == 0 {
		return nil
	}
	r, ok := src.(sources.Retainer)
	if !ok {
		return errors.New("its kind says that it can keep records from deletion, and it cannot")
	}
	l.tell.RLock()
	defer l.tell.RUnlock()
	all, err := l.srv.Datasets(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(d serve.Dataset) bool { return d.ID == l.id }) {
		return serve.ErrUnknown // it was deleted
	}
	return r.Begin(ctx, parts)
}
