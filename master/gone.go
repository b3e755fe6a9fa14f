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
	var of [][]sources.Segment
	for i := range needs {
		n := &needs[i]
		if slices.ContainsFunc(marks, func(m sources.Mark) bool { return string(m.Partition) == n.Source }) {
			continue // another virtual rank's
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

// note keeps what is gone for those who ask of a checkpoint. The error is of
// partitions of which it is not known. segs are a mark's segment and those after it that
// the mark is for as well.
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
