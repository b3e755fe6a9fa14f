package master

import (
	"context"
	"errors"
	"slices"

	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// What is deleted already: of the oldest kept checkpoint's input as well, so that it
// can be said of each which ranges are gone.

// opened opens the source with what was planned of it: a topic that was made again is
// known by that.
func (w *watch) opened(ctx context.Context, needs []serve.Need) (sources.Source, error) {
	var known []sources.Segment
	for i := range needs {
		segs, err := w.srv.Segments(ctx, needs[i].Partition, -1, 0)
		if err != nil {
			return nil, err
		}
		known = append(known, segs...)
		if w.spec.BitExact != nil {
			break // virtual ranks list the same
		}
	}
	return w.open(ctx, w.spec, known)
}

// begins asks where the segments begin by now, and nothing else.
func (w *watch) begins(ctx context.Context, keeper sources.Keeper, needs []serve.Need) error {
	var marks []sources.Mark
	for i := range needs {
		n := &needs[i]
		if slices.ContainsFunc(marks, func(m sources.Mark) bool { return string(m.Partition) == n.Source }) {
			continue // another virtual rank's
		}
		segs, err := w.srv.Segments(ctx, n.Partition, -1, 0)
		if err != nil {
			return err
		}
		for _, g := range segs {
			marks = append(marks, sources.Mark{Partition: sources.PartitionID(n.Source), Position: sources.Position{Segment: g.ID, Offset: g.Start}})
		}
	}
	all, err := keeper.Keeps(ctx, marks, -1)
	if err != nil {
		return err
	}
	return w.note(marks, all)
}

// note keeps what is gone for those who ask of a checkpoint. The error is of
// partitions of which it is not known.
func (w *watch) note(marks []sources.Mark, all []sources.Kept) (err error) {
	var found []serve.Deletion
	for i := range all {
		k := &all[i]
		if k.Err != nil {
			err = errors.Join(err, k.Err)
		}
		if k.Err == nil || k.Gone {
			found = append(found, serve.Deletion{Source: string(marks[i].Partition), Segment: marks[i].Position.Segment, Low: k.Low, All: k.Gone})
		}
	}
	w.srv.NoteDeleted(w.id, found)
	return err
}
