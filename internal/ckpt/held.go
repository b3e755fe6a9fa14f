package ckpt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/sources"
)

// askWithin bounds the question whether a source holds a record.
const askWithin = 15 * time.Second

// OpenSource opens what a partition of a dataset is read from.
type OpenSource func(dataset, partition string) (sources.Source, error)

// askSource resolves a settled position: the source says whether it holds a record. The
// error says why it is not known.
func askSource(ctx context.Context, c *manifest.Checkpoint, w *audit.Where, open OpenSource) error {
	src, err := open(w.Dataset, w.Partition)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	held, err := holds(ctx, src, segmentOf(c, w), w)
	if err != nil {
		return err
	}
	if rewriter, ok := src.(sources.Rewriter); ok && !held {
		switch gone, err := rewriter.Rewrites(ctx, sources.PartitionID(w.Partition)); {
		case err != nil:
			return err
		case gone:
			return fmt.Errorf("%s offset %d holds no record now, and may have held one: records of this topic are compacted away", w.Name, w.Offset)
		}
	}
	w.HasRecord(held)
	return nil
}

// holds reports whether a record begins at the position.
func holds(ctx context.Context, src sources.Source, g *sources.Segment, w *audit.Where) (bool, error) {
	r := sources.Range{Partition: sources.PartitionID(w.Partition), Segment: g.ID, Start: w.Offset, End: w.Offset + 1}
	cur, err := src.Open(ctx, r, sources.Position{Segment: g.ID, Offset: w.Offset}, g.Locator)
	if err != nil {
		return false, err
	}
	defer func() { _ = cur.Close() }()
	var b sources.Batch
	for {
		switch err := cur.Next(ctx, &b); {
		case err == io.EOF:
			return false, nil
		case errors.As(err, new(*sources.TooLarge)):
			return true, nil
		case err != nil:
			return false, err
		}
		for i := range b.Len() {
			if b.Rec(i).Offset == w.Offset {
				return true, nil
			}
		}
	}
}

// segmentOf is the segment of the cut that w is in.
func segmentOf(c *manifest.Checkpoint, w *audit.Where) *sources.Segment {
	cut := &c.Manifest.Cut
	for i := range cut.Datasets {
		for j := range cut.Datasets[i].Partitions {
			p := &cut.Datasets[i].Partitions[j]
			identity, _ := cut.Datasets[i].VirtualRank(p)
			for k := range p.Segments {
				if cut.Datasets[i].Name == w.Dataset && identity == w.Partition && p.Segments[k].ID == w.Segment {
					return &p.Segments[k]
				}
			}
		}
	}
	return &sources.Segment{ID: w.Segment}
}
