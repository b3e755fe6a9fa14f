package sample

import (
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
)

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

// number keeps what JSON cannot write as text: NaN and the infinities.
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
