package landing_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/storage"
	master "github.com/headrace/headrace/master/landing"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/landing"
	"github.com/headrace/headrace/sources/sourcetest"
)

const (
	partitions = 3
	maxRecord  = 64 << 10
)

// place is a folder of chunks and the segments that a master would have appended.
type place struct {
	chunks *master.Local
	folder *storage.Folder
	rng    *rand.Rand
	stream string
	segs   []sources.Segment
	next   [partitions]int64
}

func newPlace(t testing.TB) sourcetest.Place {
	dir := t.TempDir()
	folder, err := storage.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Close() })
	p := &place{chunks: &master.Local{At: dir}, folder: folder, rng: rand.New(rand.NewPCG(1, 1))}
	t.Cleanup(func() { _ = p.chunks.Close() })
	if p.stream, err = p.chunks.Stream(context.Background(), "pushed"); err != nil {
		t.Fatal(err)
	}
	return p
}

// Produce writes the records as one transaction, in chunks of random sizes.
func (p *place) Produce(t testing.TB, records [][]byte) {
	for len(records) > 0 {
		n := min(len(records), 1+p.rng.IntN(2000))
		var b chunk.Builder
		for _, r := range records[:n] {
			b.Add(chunk.Record{Value: r})
		}
		records = records[n:]
		part := p.rng.IntN(partitions)
		data, key := b.Chunk(), chunk.NewKey(p.stream, part, "t", time.Now())
		h, err := chunk.ReadHeader(data)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.folder.Put(context.Background(), key.String(), data); err != nil {
			t.Fatal(err)
		}
		l := chunk.Locator{Key: key.String(), Size: int64(len(data)), Records: h.Records, Sum: h.Sum}
		p.segs = append(p.segs, sources.Segment{ID: p.next[part], End: int64(n), Sealed: true, Name: key.Name(), Locator: []byte(l.String())})
		p.next[part]++
	}
}

// Open returns a source that knows all segments, also those that the master has appended meanwhile.
func (p *place) Open(testing.TB, []sources.Segment) sources.Source {
	return landing.Open(landing.Options{Dataset: "pushed", Partitions: partitions, MaxRecord: maxRecord, Known: p.segs, Chunks: p.chunks})
}

func (p *place) each(t testing.TB, do func(key string) error) {
	for _, g := range p.segs {
		l, _, err := chunk.ParseLocator(string(g.Locator))
		if err == nil {
			err = do(l.Key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestConformance(t *testing.T) {
	sourcetest.Run(t, sourcetest.Harness{
		New:        newPlace,
		Contiguous: true,
		MaxRecord:  maxRecord,
		Remove: func(t testing.TB, at sourcetest.Place) {
			p := at.(*place)
			p.each(t, func(key string) error { return p.folder.Delete(context.Background(), key) })
		},
		Change: func(t testing.TB, at sourcetest.Place) {
			p := at.(*place)
			var b chunk.Builder
			b.Add(chunk.Record{Value: []byte("another")})
			p.each(t, func(key string) error { return p.folder.Put(context.Background(), key, b.Chunk()) })
		},
	})
}

func TestKeysTimesHeadersAndNullsAreThoseOfTheRecord(t *testing.T) {
	p := newPlace(t).(*place)
	var b chunk.Builder
	b.Add(chunk.Record{Key: []byte("k"), Value: []byte("v"), Time: 17, Headers: []chunk.Field{{Key: []byte("h"), Value: []byte("x")}}})
	b.Add(chunk.Record{Key: []byte("k"), Null: true})
	data, key := b.Chunk(), chunk.NewKey(p.stream, 1, "t", time.Now())
	if err := p.folder.Put(t.Context(), key.String(), data); err != nil {
		t.Fatal(err)
	}
	h, err := chunk.ReadHeader(data)
	if err != nil {
		t.Fatal(err)
	}
	l := chunk.Locator{Key: key.String(), Size: int64(len(data)), Records: 2, Sum: h.Sum}
	r := sources.Range{Partition: sources.PartitionID(key.PartitionID()), Segment: 5, End: 2}
	c, err := p.Open(t, nil).Open(t.Context(), r, sources.Position{Segment: 5}, []byte(l.String()))
	if err != nil {
		t.Fatal(err)
	}
	var got sources.Batch
	if err := c.Next(t.Context(), &got); err != nil || len(got.Recs) != 2 || got.End != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	text := func(at [2]int32) string { return string(got.Arena[at[0]:at[1]]) }
	a, z := got.Recs[0], got.Recs[1]
	if text(a.Key) != "k" || text(a.Value) != "v" || a.Time != 17 || len(a.Headers) != 1 || text(a.Headers[0].Key) != "h" || text(a.Headers[0].Value) != "x" || a.Tombstone {
		t.Errorf("%+v of %q", a, got.Arena)
	}
	if text(z.Key) != "k" || !z.Tombstone || z.Offset != 1 || z.Next != 2 {
		t.Errorf("%+v of %q", z, got.Arena)
	}
}

var _ dataset.Chunks = (*master.Local)(nil)
