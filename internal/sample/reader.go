package sample

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/sources"
)

// reader walks a dataset's records in this process. It takes no lease and asks no master.
type reader struct {
	spec *dataset.Spec
	src  sources.Source
	dec  *decode.Decoder
	// bad, if it is set, is told of a record that cannot be read although the next one can.
	bad func(err error) error
}

// Opener opens a dataset's source with the user's own rights.
type Opener func(spec *dataset.Spec) (sources.Source, error)

func openReader(spec *dataset.Spec, open Opener) (*reader, error) {
	src, err := open(spec)
	if err != nil {
		return nil, err
	}
	dec, err := decode.Compile(spec, decode.WithSchemas(decode.SchemasOf(src)))
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return &reader{spec: spec, src: src, dec: dec}, nil
}

func (r *reader) close() { _ = r.src.Close() }

// errEnough stops walk without an error.
var errEnough = errors.New("enough")

// walk calls each with every run of records, in order, with the decoder of their
// file, until each returns errEnough.
func (r *reader) walk(ctx context.Context, each func(name string, dec *decode.Decoder, b *sources.Batch) error) error {
	parts, err := r.src.Partitions(ctx)
	if err != nil {
		return err
	}
	for _, p := range parts {
		for after := int64(-1); ; {
			segs, err := r.src.Segments(ctx, p, after, 1)
			if err != nil {
				return err
			}
			if len(segs) == 0 {
				break
			}
			after = segs[0].ID
			if err := r.segment(ctx, p, segs[0], each); errors.Is(err, errEnough) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reader) segment(ctx context.Context, p sources.PartitionID, s sources.Segment,
	each func(string, *decode.Decoder, *sources.Batch) error) error {
	return r.passing(s.Start, func(at int64) error {
		return r.from(ctx, p, s, at, func(dec *decode.Decoder, b *sources.Batch) error { return each(s.Name, dec, b) })
	})
}

// passing calls read with start. If read meets a record that cannot be read, but the next one
// can, passing calls read again with the start of that next one. An agent does the same with
// on_error: skip.
func (r *reader) passing(start int64, read func(at int64) error) error {
	for at := start; ; {
		err := read(at)
		alone, ok := sources.StandsAlone(err)
		if !ok || alone.Next <= at {
			return err
		}
		if r.bad != nil {
			if err := r.bad(err); err != nil {
				return err
			}
		}
		at = alone.Next
	}
}

// from gives the records of a segment from at on.
func (r *reader) from(ctx context.Context, p sources.PartitionID, s sources.Segment, at int64, each func(*decode.Decoder, *sources.Batch) error) error {
	if at >= s.End {
		return nil
	}
	cur, err := r.src.Open(ctx, sources.Range{Partition: p, Segment: s.ID, Start: at, End: s.End},
		sources.Position{Segment: s.ID, Offset: at}, s.Locator)
	if err != nil {
		return err
	}
	defer func() { _ = cur.Close() }()
	dec, err := bindFile(r.dec, cur, s)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	var b sources.Batch
	for {
		if err := cur.Next(ctx, &b); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := each(dec, &b); err != nil {
			return err
		}
	}
}

// bindFile gives the decoder of a segment's file: its first line may name fields, and its
// path may say values.
func bindFile(dec *decode.Decoder, cur sources.Cursor, s sources.Segment) (*decode.Decoder, error) {
	if h, ok := cur.(sources.Headed); ok && h.Header() != nil {
		var err error
		if dec, err = dec.Bind(h.Header()); err != nil {
			return nil, err
		}
	}
	return dec, dec.In(s.Name)
}
