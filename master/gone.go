package master

import (
	"context"
	"errors"
	"slices"

	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// The guard also finds ranges that the source has deleted, from the oldest kept checkpoint
// on. So status can show for each checkpoint which ranges a rewind to it would miss.

// firstChunks is how many chunks of a partition are looked at, from the first one on. The
// segments of deleted chunks are trimmed, so the first chunk that still exists is among them.
const firstChunks = 1024

// opened opens the source with the planned segments, so that the source notices a topic that
// was deleted and created again.
func (w *watch) opened(ctx context.Context, needs []serve.Need) (sources.Source, error) {
	var known []sources.Segment
	for i := range needs {
		most := 0
		if w.spec.Kind().Pushed {
			most = firstChunks
		}
		segs, err := w.srv.Segments(ctx, needs[i].Partition, -1, most)
		if err != nil {
			return nil, err
		}
		known = append(known, segs...)
		if w.spec.BitExact != nil {
			break // the other virtual ranks have the same segments
		}
	}
	return w.open(ctx, w.spec, known)
}

// begins asks only where the segments begin now, without a forecast.
func (w *watch) begins(ctx context.Context, keeper sources.Keeper, needs []serve.Need) error {
	var marks []sources.Mark
	var of [][]sources.Segment
	for i := range needs {
		n := &needs[i]
		if slices.ContainsFunc(marks, func(m sources.Mark) bool { return string(m.Partition) == n.Source }) {
			continue // the same segments, for another virtual rank
		}
		segs, err := w.srv.Segments(ctx, n.Partition, -1, 0)
		if err != nil {
			return err
		}
		for j, g := range segs {
			of = append(of, segs[j:j+1])
			marks = append(marks, sources.Mark{Partition: sources.PartitionID(n.Source), Position: sources.Position{Segment: g.ID, Offset: g.Start}})
		}
	}
	all, err := keeper.Keeps(ctx, marks, -1)
	if err != nil {
		return err
	}
	return w.note(marks, all, of)
}

// note stores the deleted ranges, for questions about checkpoints. The error names
// partitions whose state is not known. segs[i] are the segments from marks[i] on.
func (w *watch) note(marks []sources.Mark, all []sources.Kept, segs [][]sources.Segment) (err error) {
	var found []serve.Deletion
	for i := range all {
		k := &all[i]
		if k.Err != nil {
			err = errors.Join(err, k.Err)
		}
		of, at := string(marks[i].Partition), marks[i].Position.Segment
		switch {
		case k.Gone:
			found = append(found, serve.Deletion{Source: of, Segment: at, All: true})
		case k.Err == nil && w.spec.Kind().Pushed && w.foresees:
			for _, g := range segs[i] {
				if g.ID < k.Low.Segment || g.ID == k.Low.Segment && g.End <= k.Low.Offset {
					found = append(found, serve.Deletion{Source: of, Segment: g.ID, Low: g.End})
				}
			}
		case k.Err != nil || k.Low.Segment < at:
		case k.Low.Segment == at:
			found = append(found, serve.Deletion{Source: of, Segment: at, Low: k.Low.Offset})
		default:
			for _, g := range segs[i] {
				if g.ID < k.Low.Segment {
					found = append(found, serve.Deletion{Source: of, Segment: g.ID, Low: g.End})
				} else if g.ID == k.Low.Segment {
					found = append(found, serve.Deletion{Source: of, Segment: g.ID, Low: k.Low.Offset})
				}
			}
		}
	}
	w.srv.NoteDeleted(w.id, found)
	return err
}
