package memsource

import (
	"context"
	"fmt"
	"io"

	"github.com/headrace/headrace/sources"
)

const perBatch = 10 // records

// cursor reads one range. At the head of a growing segment it waits. It also waits if the segment was
// sealed before the range ends: the lease will be cut short there.
type cursor struct {
	s      *Source
	r      sources.Range
	at     int64
	onHead func(int64)
	closed bool
}

func (c *cursor) OnHead(f func(head int64)) { c.onHead = f }

func (c *cursor) Close() error {
	c.closed = true
	return nil
}

func (c *cursor) Next(ctx context.Context, b *sources.Batch) error {
	for {
		head, changed, err := c.fill(ctx, b)
		if err != nil {
			return err
		}
		if c.onHead != nil {
			c.onHead(head)
		}
		switch {
		case len(b.Recs) > 0:
			return nil
		case c.at >= c.r.End:
			return io.EOF
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fill reads the records that are there. It gives the end of the segment, and a channel that is closed
// with the next change of the log.
func (c *cursor) fill(ctx context.Context, b *sources.Batch) (head int64, changed <-chan struct{}, err error) {
	b.Reset()
	err = c.s.with(ctx, func() error {
		g := c.s.log.find(c.r.Partition).segment(c.r.Segment)
		head, changed = g.end(), c.s.log.changed
		if g.trimmed && c.at < c.r.End {
			return &sources.Truncated{Name: fmt.Sprintf("%s segment %d", c.r.Partition, c.r.Segment), Err: fmt.Errorf("the segment was trimmed"),
				Lost: sources.Range{Partition: c.r.Partition, Segment: c.r.Segment, Start: c.at, End: min(c.r.End, g.end())}}
		}
		stop := min(c.r.End, head)
		for i := (c.at + Stride - 1) / Stride; i*Stride < stop && len(b.Recs) < perBatch; i++ {
			from := int32(len(b.Arena))
			b.Arena = append(b.Arena, g.records[i]...)
			next := min((i+1)*Stride, c.r.End)
			b.Recs = append(b.Recs, sources.Record{Offset: i * Stride, Next: next, Value: [2]int32{from, int32(len(b.Arena))}})
			c.at = next
		}
		if len(b.Recs) == 0 {
			c.at = max(c.at, stop) // there are only holes up to stop
		}
		b.End = c.at
		return nil
	})
	return head, changed, err
}
