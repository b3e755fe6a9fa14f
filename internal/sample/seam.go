package sample

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/sources"
)

// Seam is where the two inputs of a dataset with a backfill meet: the last record of the
// backfill, and the first one of each partition of the source. Whether one follows the other
// is for people to see.
type Seam struct {
	Name  string `json:"name"`
	Last  []Edge `json:"last"`
	First []Edge `json:"first"`
}

// Edge is a record at the end of an input.
type Edge struct {
	Partition string     `json:"partition"`
	Place     string     `json:"place"` // for people
	Offset    int64      `json:"offset"`
	Time      *time.Time `json:"time,omitempty"` // that the broker gave it
	Row       *ordered   `json:"row,omitempty"`  // absent: the partition has no record there yet
}

// seamPartitions bounds what is shown of a topic with very many partitions.
const seamPartitions = 64

// lastWindow is how many offsets at the end of a segment are searched first for its last record.
const lastWindow = 64 << 10

// SeamOf looks at both sides. nil: the dataset has one input.
func SeamOf(ctx context.Context, spec *dataset.Spec, open Opener) (*Seam, error) {
	if spec.Backfill == nil {
		return nil, nil
	}
	all := spec.Inputs()
	s := &Seam{Name: spec.Name, Last: []Edge{}, First: []Edge{}}
	for i, in := range all {
		r, err := openReader(in, open)
		if err != nil {
			return nil, err
		}
		edges, err := r.edges(ctx, i == 0)
		r.close()
		if err != nil {
			return nil, fmt.Errorf("dataset %s: %s: %w", spec.Name, in.Kind().Name, err)
		}
		if i == 0 {
			s.Last = edges
		} else {
			s.First = edges
		}
	}
	return s, nil
}

// edges are the last records of each partition, or the first ones.
func (r *reader) edges(ctx context.Context, last bool) ([]Edge, error) {
	parts, err := r.src.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	edges := []Edge{}
	for _, p := range parts[:min(len(parts), seamPartitions)] {
		segs, err := r.ends(ctx, p, last)
		if err != nil {
			return nil, err
		}
		e := Edge{Partition: sources.NameOf(r.src, p)}
		for k := range segs {
			g := segs[k]
			if last {
				g = segs[len(segs)-1-k]
			}
			e.Place, e.Offset = g.Name, g.Start
			found, err := r.edge(ctx, p, g, last, &e)
			if err != nil {
				return nil, err
			}
			if found {
				break
			}
		}
		edges = append(edges, e)
	}
	return edges, nil
}

// ends are the first segment of a partition, or all of them.
func (r *reader) ends(ctx context.Context, p sources.PartitionID, last bool) (all []sources.Segment, err error) {
	if !last {
		return r.src.Segments(ctx, p, -1, 1)
	}
	const some = 1024
	for after := int64(-1); ; {
		segs, err := r.src.Segments(ctx, p, after, some)
		if err != nil || len(segs) == 0 {
			return all, err
		}
		all, after = append(all, segs...), segs[len(segs)-1].ID
		if n := len(all) - some; n > 0 { // the last ones are enough
			all = all[n:]
		}
	}
}

// edge finds the last record of a segment, or the first one.
func (r *reader) edge(ctx context.Context, p sources.PartitionID, g sources.Segment, last bool, e *Edge) (found bool, err error) {
	if !last {
		return r.record(ctx, p, g, g.Start, false, e)
	}
	for window := int64(lastWindow); ; window *= 64 {
		from := max(g.Start, g.End-window)
		if found, err = r.record(ctx, p, g, from, true, e); found || err != nil || from == g.Start {
			return found, err
		}
	}
}

// record decodes the first or the last record that begins in [from, end) of a segment.
func (r *reader) record(ctx context.Context, p sources.PartitionID, g sources.Segment, from int64, last bool, e *Edge) (found bool, err error) {
	err = r.passing(from, func(at int64) error {
		return r.from(ctx, p, g, at, func(dec *decode.Decoder, b *sources.Batch) error {
			at := 0
			if last {
				at = b.Len() - 1
			}
			if err := r.edgeRow(dec, b, at, g.Name, e); err != nil {
				return err
			}
			if found = true; !last {
				return errEnough
			}
			return nil
		})
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return found, err
}

func (r *reader) edgeRow(dec *decode.Decoder, b *sources.Batch, at int, name string, e *Edge) error {
	rec := b.Rec(at)
	e.Offset, e.Place, e.Time = rec.Offset, r.spec.Place(name, rec.Offset), nil
	if rec.Time != 0 {
		t := time.UnixMilli(rec.Time).UTC()
		e.Time = &t
	}
	builder, err := dec.NewBuilder(1)
	if err != nil {
		return err
	}
	if _, err := dec.Append(builder, b, at, 1); err != nil {
		return located(r.spec, name, err)
	}
	if builder.Rows() > 0 { // else it is a tombstone
		e.Row = &ordered{dec.Schema().Names(), row(builder, 0)}
	}
	return nil
}

// Write prints both sides, one under the other.
func (s *Seam) Write(w io.Writer) {
	fmt.Fprintf(w, "dataset %s, where its inputs meet:\n", s.Name)
	write := func(what string, all []Edge) {
		for _, e := range all {
			at := fmt.Sprintf("%s %s", what, e.Place)
			if e.Place != "" {
				at += fmt.Sprintf(" offset %d", e.Offset)
			} else {
				at += e.Partition
			}
			if e.Time != nil {
				at += " (" + e.Time.Format(time.RFC3339Nano) + ")"
			}
			if e.Row == nil {
				fmt.Fprintf(w, "  %s: no record there yet\n", at)
				continue
			}
			text, err := json.Marshal(e.Row)
			if err != nil {
				text = []byte(err.Error())
			}
			fmt.Fprintf(w, "  %s: %s\n", at, terminal.Clip(terminal.Cell(string(text)), 160))
		}
	}
	write("last record of the history:", s.Last)
	write("first record of the source:", s.First)
}
