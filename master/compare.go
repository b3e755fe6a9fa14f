package master

import (
	"context"
	"slices"

	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// ending is the last segment of a partition, as the shard service numbers them.
type ending struct {
	partition uint32
	segment   int64
}

// replaced asks a source which records its broker took back, and returns them as heads that
// fell. If such records were planned, the shard service stops the dataset: they may be in
// the model, and other records have their positions now.
func replaced(ctx context.Context, src sources.Source, ends func(sources.PartitionID) (ending, bool)) ([]serve.Head, error) {
	c, ok := src.(sources.Comparer)
	if !ok {
		return nil, nil
	}
	found, err := c.Compare(ctx)
	var heads []serve.Head
	for _, r := range found {
		if e, known := ends(r.Partition); known {
			heads = append(heads, serve.Head{Partition: e.partition, Segment: e.segment, End: r.From, Fallen: true})
		}
	}
	return heads, err
}

// compare calls replaced if a partition has ended. For partitions that grow, following does
// the same with a Source of its own.
func (w *watch) compare(ctx context.Context, src sources.Source, needs []serve.Need, segs [][]sources.Segment) error {
	if !slices.ContainsFunc(segs, ended) {
		return nil
	}
	heads, err := replaced(ctx, src, func(id sources.PartitionID) (ending, bool) {
		for i, n := range needs {
			if sources.PartitionID(n.Identity) == id && ended(segs[i]) {
				return ending{n.Partition, segs[i][len(segs[i])-1].ID}, true
			}
		}
		return ending{}, false
	})
	if len(heads) > 0 {
		if err := w.srv.Heads(ctx, heads); err != nil {
			return err
		}
	}
	return err
}

func ended(segs []sources.Segment) bool { return len(segs) > 0 && segs[len(segs)-1].Sealed }
