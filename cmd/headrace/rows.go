package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"unicode/utf8"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"
)

// reader walks a dataset's records in this process: no lease, no master. It
// reads with the user's own rights, so the spec's root is allowed.
type reader struct {
	spec *dataset.Spec
	src  sources.Source
	dec  *decode.Decoder
}

func openReader(spec *dataset.Spec) (*reader, error) {
	spec = spec.ForALook()
	dec, err := decode.Compile(spec)
	if err != nil {
		return nil, err
	}
	roots := spec.Folders()
	if len(roots) == 0 {
		roots = []string{"/"}
	}
	src, err := openSource(spec, roots, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return &reader{spec, src, dec}, nil
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
	cur, err := r.src.Open(ctx, sources.Range{Partition: p, Segment: s.ID, Start: s.Start, End: s.End},
		sources.Position{Segment: s.ID, Offset: s.Start}, s.Locator)
	if err != nil {
		return err
	}
	defer func() { _ = cur.Close() }()
	dec, err := bind(r.dec, cur)
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
		if err := each(s.Name, dec, &b); err != nil {
			return err
		}
	}
}

// row is one decoded row for people and JSON, columns in the spec's order.
func row(b *frame.Builder, i int) []any {
	layout := b.Layout()
	out := make([]any, len(layout.Columns))
	for k := range layout.Columns {
		out[k] = cell(&layout.Columns[k], &b.Columns[k], i)
	}
	return out
}

// cell is the value of row i: a scalar, a list, or nil where it is missing.
func cell(c *frame.ColumnLayout, b *frame.Buffers, i int) any {
	switch c.Kind {
	case frame.Fixed:
		values := make([]any, c.Elements)
		for e := range values {
			at := i*c.Elements + e
			if c.Field.Mask && b.Mask[at] == 0 {
				continue
			}
			values[e] = element(c.Field.DType, b.Values, at)
		}
		if len(c.Field.Shape) == 0 {
			return values[0]
		}
		return values
	case frame.Bytes:
		if c.Field.Mask && b.Mask[i] == 0 {
			return nil
		}
		return text(c.Field.DType, b.Values[b.RowOffsets[i]:b.RowOffsets[i+1]])
	case frame.Ragged:
		if c.Field.Mask && b.Mask[i] == 0 {
			return nil
		}
		values := []any{}
		for at := b.RowOffsets[i]; at < b.RowOffsets[i+1]; at++ {
			values = append(values, element(c.Field.DType, b.Values, int(at)))
		}
		return values
	}
	if c.Field.Mask && b.Mask[i] == 0 {
		return nil
	}
	values := []any{}
	for at := b.RowOffsets[i]; at < b.RowOffsets[i+1]; at++ {
		values = append(values, text(c.Field.DType, b.Values[b.Elements[at]:b.Elements[at+1]]))
	}
	return values
}

func element(d dataset.DType, b []byte, i int) any {
	switch d {
	case dataset.Bool:
		return b[i] != 0
	case dataset.Int32:
		return frame.View[int32](b)[i]
	case dataset.Int64:
		return frame.View[int64](b)[i]
	case dataset.Float32:
		return number(frame.View[float32](b)[i])
	default:
		return number(frame.View[float64](b)[i])
	}
}

// number keeps what JSON can not write as text: NaN and the infinities.
func number[T float32 | float64](f T) any {
	if f-f != 0 {
		return fmt.Sprint(f)
	}
	return f
}

// text is a string, or base64 for bytes that are none.
func text(d dataset.DType, b []byte) any {
	if d == dataset.String || utf8.Valid(b) {
		return string(b)
	}
	return "base64:" + base64.StdEncoding.EncodeToString(b)
}
