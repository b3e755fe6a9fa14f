package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"io"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/sources"
)

// read gives the records of a piece that begin in [from, to), and where the next record begins. It stops
// where the log has no record yet, or no record any more, or a bad one. It opens the piece each time: an
// open piece would show nothing else. It does not wait at the head: its context ends when the source has
// said where the head is.
func (w *World) read(g *pb.Grant, p *part, piece *pb.Piece, from, to int64, do func(rec int32, next int64)) *met {
	l, s := p.log, p.segment(piece.Segment)
	c, err := l.agents.Open(context.Background(), sources.Range{Partition: sources.PartitionID(p.identity), Segment: piece.Segment, Start: piece.Start, End: piece.End},
		sources.Position{Segment: piece.Segment, Offset: from}, piece.Locator)
	if !w.answered(l, "opening a segment", err) {
		return nil
	}
	defer func() { _ = c.Close() }()
	var told context.CancelFunc
	c.(sources.Tailing).OnHead(func(head int64) {
		if head != s.head(w.now) {
			w.fail("a reader of %s segment %d is told the head %d, it is %d", p.identity, s.id, head, s.head(w.now))
		}
		told()
	})
	var b sources.Batch
	for {
		ctx, cancel := context.WithCancel(context.Background())
		told = cancel
		err := c.Next(ctx, &b)
		cancel()
		if lost, ok := errors.AsType[*sources.Truncated](err); ok {
			return &met{at: lost.Lost.Start, lost: &pb.LostRange{Segment: piece.Segment, Start: lost.Lost.Start, End: min(lost.Lost.End, to)}}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || !w.answered(l, "reading", err) {
			return nil
		}
		for _, r := range b.Recs {
			if r.Offset >= to {
				return nil
			}
			k := s.from(r.Offset)
			if bad := badRecord(g, s, piece.Segment, k); bad != nil {
				return &met{at: r.Offset, bad: bad}
			}
			if number := binary.BigEndian.Uint32(b.Arena[r.Value[0]:r.Value[1]]); int(number) != s.first+k {
				w.fail("record %d is read at the place of %s", number, w.input.where(int32(s.first+k)))
			}
			do(int32(s.first+k), r.Next)
		}
	}
}
