package master

import (
	"context"

	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// ending is the place of a partition in the shard service: the segment that it ends with.
type ending struct {
	partition uint32
	segment   int64
}

// replaced asks a source whose broker may take records back which ones it took, and gives
// the heads that say so. The shard service stops a dataset of which such records were
// planned: they may be in the model, and others have their positions.
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

// compare does so for partitions that have ended. Those that grow are followed.
func (w *watch) compare(ctx context.Context, src sources.Source, needs []serve.Need, segs [][]sources.Segment) error {
	heads, err := replaced(ctx, src, func(id sources.PartitionID) (ending, bool) {
		for i, n := range needs {
			if k := len(segs[i]); sources.PartitionID(n.Identity) == id && k > 0 && segs[i][k-1].Sealed {
				return ending{n.Partition, segs[i][k-1].ID}, true
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
