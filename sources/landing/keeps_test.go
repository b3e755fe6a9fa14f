package landing_test

import (
	"testing"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/landing"
)

// Chunks are deleted in order, and the first entries of the table may be trimmed.
func TestTheFirstChunkThatIsThereIsFound(t *testing.T) {
	for gone := range 12 {
		for trimmed := range gone + 1 {
			p := newPlace(t).(*place)
			var all []sources.Segment
			for len(all) < 11 { // so many chunks of one partition
				before := len(p.segs)
				p.Produce(t, [][]byte{[]byte("a"), []byte("b")})
				for _, g := range p.segs[before:] {
					if _, k, err := chunk.ParseLocator(string(g.Locator)); err == nil && k.Partition == 1 {
						all = append(all, g)
					}
				}
			}
			for i := range gone {
				if i < len(all) {
					l, _, err := chunk.ParseLocator(string(all[i].Locator))
					if err == nil {
						err = p.folder.Delete(t.Context(), l.Key)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			known := append([]sources.Segment{}, all...)
			if trimmed > 0 && trimmed < len(known) {
				known[trimmed-1].Locator, known[trimmed-1].Start = nil, -100
				known = known[trimmed-1:]
			}
			src := landing.Open(landing.Options{Dataset: "pushed", Partitions: partitions, Known: known, Chunks: p.chunks})
			id := sources.PartitionID(chunk.PartitionID(p.stream, 1))
			kept, err := src.Keeps(t.Context(), []sources.Mark{{Partition: id, Position: sources.Position{Segment: all[0].ID}}}, 0)
			if err != nil || len(kept) != 1 || kept[0].Err != nil {
				t.Fatal(kept, err)
			}
			want := sources.Position{Segment: all[len(all)-1].ID, Offset: all[len(all)-1].End}
			if gone < len(all) {
				want = sources.Position{Segment: all[gone].ID}
			}
			if kept[0].Low != want || !kept[0].Retained || kept[0].ByAge != sources.Never {
				t.Errorf("%d of %d chunks are deleted, %d of them trimmed: %+v, want low %v", gone, len(all), trimmed, kept[0], want)
			}
		}
	}
}
