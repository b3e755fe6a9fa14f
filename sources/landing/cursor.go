package landing

import (
	"context"
	"io"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/sources"
)

// A batch has at most so many records, or about so many bytes.
const (
	batchRecords = 4096
	batchBytes   = 1 << 20
)

// cursor reads a range of one chunk.
type cursor struct {
	src   *Source
	r     sources.Range
	key   chunk.Key
	chunk *chunk.Opened
	at    int64
}

// Next copies records, because the chunk may be read by others at the same time.
func (c *cursor) Next(ctx context.Context, b *sources.Batch) error {
	if err := c.src.usable(ctx); err != nil {
		return err
	}
	if c.at >= c.r.End {
		return io.EOF
	}
	b.Reset()
	for c.at < c.r.End && len(b.Recs) < batchRecords && len(b.Arena) < batchBytes {
		r := c.chunk.Record(int(c.at))
		if most := c.src.o.MaxRecord; most > 0 && int64(len(r.Value)) > most {
			if len(b.Recs) > 0 {
				break // the records before it come first
			}
			return &sources.TooLarge{Partition: c.r.Partition, Position: sources.Position{Segment: c.r.Segment, Offset: c.at}, Name: c.key.String(),
				Size: int64(len(r.Value)), Limit: most}
		}
		rec := sources.Record{Offset: c.at, Next: c.at + 1, Time: r.Time, Tombstone: r.Null, Key: put(b, r.Key), Value: put(b, r.Value)}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, sources.Header{Key: put(b, h.Key), Value: put(b, h.Value)})
		}
		b.Recs = append(b.Recs, rec)
		c.at++
	}
	b.End = c.at
	return nil
}

func put(b *sources.Batch, data []byte) [2]int32 {
	from := len(b.Arena)
	b.Arena = append(b.Arena, data...)
	return [2]int32{int32(from), int32(len(b.Arena))}
}

func (c *cursor) Close() error { return nil }
