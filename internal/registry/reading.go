package registry

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/schema"
	"github.com/headrace/headrace/sources"
)

// Reading returns a source that gives the same records, each batch after the registry has
// told the schemas that its records name. It can only be read from: it passes on what readers
// ask (sources.Namer, sources.Rewriter), and no commits and the like.
func Reading(src sources.Source, r *Registry) sources.Source { return &reading{toRead{src}, r} }

// toRead passes on what a reader asks a source. Embedding the interface alone would hide it.
type toRead struct{ sources.Source }

var (
	_ sources.Namer    = toRead{}
	_ sources.Rewriter = toRead{}
)

// PartitionName implements sources.Namer.
func (s toRead) PartitionName(p sources.PartitionID) string { return sources.NameOf(s.Source, p) }

// Rewrites implements sources.Rewriter.
func (s toRead) Rewrites(ctx context.Context, p sources.PartitionID) (bool, error) {
	if r, ok := s.Source.(sources.Rewriter); ok {
		return r.Rewrites(ctx, p)
	}
	return false, nil
}

type reading struct {
	toRead
	registry *Registry
}

var _ decode.Writing = (*reading)(nil)

func (s *reading) Schemas() decode.Schemas { return s.registry }

func (s *reading) Open(ctx context.Context, r sources.Range, from sources.Position, locator []byte) (sources.Cursor, error) {
	c, err := s.Source.Open(ctx, r, from, locator)
	if err != nil {
		return nil, err
	}
	learning := &cursor{Cursor: c, registry: s.registry}
	if t, ok := c.(sources.Tailing); ok {
		return &tailing{learning, t}, nil
	}
	return learning, nil
}

// cursor learns the schemas of a batch before it gives the batch away.
type cursor struct {
	sources.Cursor
	registry *Registry
	held     sources.Batch // a batch that names too many unknown ids comes in parts
	given    int           // records of held
}

type tailing struct {
	*cursor
	sources.Tailing
}

// head is what a record begins with: a byte 0 and the id.
const head = 5

// maxUnknown is how many ids of a batch the registry may not know. The batch ends before the
// next such id. The reason: values that are not in the wire format may name any number of ids,
// and a record counts as bad only after the registry was asked for its id.
const maxUnknown = 64

// Next gives a batch only when all of its schemas are known. After an error the caller opens
// the range again where it was, so no record is lost.
func (c *cursor) Next(ctx context.Context, b *sources.Batch) error {
	holds := c.given < len(c.held.Recs)
	if holds {
		b.Reset()
		b.Arena = append(b.Arena, c.held.Arena...)
		b.Recs = append(b.Recs, c.held.Recs[c.given:]...)
		b.End = c.held.End
	} else if err := c.Cursor.Next(ctx, b); err != nil {
		return err
	}
	n, err := c.learn(ctx, b)
	if err != nil {
		return err
	}
	if n < len(b.Recs) && !holds {
		c.held.Reset()
		c.held.Arena = append(c.held.Arena, b.Arena...)
		c.held.Recs = append(c.held.Recs, b.Recs...)
		c.held.End, c.given = b.End, 0
	}
	c.given += n
	if n < len(b.Recs) {
		b.Recs, b.End = b.Recs[:n], b.Recs[n-1].Next
	}
	return nil
}

// learn asks for the schemas of a batch, and returns the number of records whose schemas it has
// asked for: one or more.
func (c *cursor) learn(ctx context.Context, b *sources.Batch) (int, error) {
	last, any, unknowns := uint32(0), false, 0
	for i := range b.Recs {
		v := b.Arena[b.Recs[i].Value[0]:b.Recs[i].Value[1]]
		if len(v) < head || v[0] != 0 || b.Recs[i].Tombstone {
			continue
		}
		id := binary.BigEndian.Uint32(v[1:])
		if any && id == last {
			continue
		}
		last, any = id, true
		if unknowns >= maxUnknown && !c.registry.has(id, time.Now()) {
			return i, nil
		}
		isUnknown, err := c.registry.learn(ctx, id)
		if err != nil {
			return 0, err
		}
		if isUnknown {
			unknowns++
		}
	}
	return len(b.Recs), nil
}

// Giving returns a source whose records have the schema of the spec.
func Giving(src sources.Source, s *schema.Schema) sources.Source { return &giving{toRead{src}, s} }

type giving struct {
	toRead
	given *schema.Schema
}

var _ decode.Writing = (*giving)(nil)

func (s *giving) Schemas() decode.Schemas { return s }

// Schema implements decode.Schemas.
func (s *giving) Schema(uint32) (*schema.Schema, error) { return s.given, nil }
