package sample

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/suggest"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/sources"
)

// Rows are the first rows of a dataset, columns in the spec's order.
type Rows struct {
	names []string
	rows  [][]any
}

// First decodes the first n rows of a dataset: all columns, or those that are named.
func First(ctx context.Context, spec *dataset.Spec, open Opener, n int, columns []string) (*Rows, error) {
	r, err := openReader(spec, open)
	if err != nil {
		return nil, err
	}
	defer r.close()
	names := r.dec.Schema().Names()
	for _, want := range columns {
		if !slices.Contains(names, want) {
			return nil, advice.NotFound.Errorf(suggest.Hint(want, names, "columns"), "dataset %s has no column %s", spec.Name, want)
		}
	}
	if len(columns) > 0 {
		if r.dec, err = decode.Compile(r.spec, decode.WithColumns(columns), decode.WithSchemas(decode.SchemasOf(r.src))); err != nil {
			return nil, err
		}
		names = r.dec.Schema().Names()
	}
	rows, err := r.rows(ctx, n)
	if err != nil {
		return nil, err
	}
	return &Rows{names, rows}, nil
}

// Objects are the rows as JSON objects.
func (v *Rows) Objects() []ordered {
	out := make([]ordered, len(v.rows))
	for i := range v.rows {
		out[i] = ordered{v.names, v.rows[i]}
	}
	return out
}

// rows decodes the first n rows.
func (r *reader) rows(ctx context.Context, n int) ([][]any, error) {
	builder, err := r.dec.NewBuilder(n)
	if err != nil {
		return nil, err
	}
	err = r.walk(ctx, func(name string, dec *decode.Decoder, b *sources.Batch) error {
		for from := 0; from < b.Len(); {
			took, err := dec.Append(builder, b, from, n)
			if err != nil {
				return located(r.spec, name, err)
			}
			if from += took; builder.Rows() == n || took == 0 {
				break
			}
		}
		if builder.Rows() == n {
			return errEnough
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	rows := make([][]any, builder.Rows())
	for i := range rows {
		rows[i] = row(builder, i)
	}
	return rows, nil
}

// located adds what the decoder does not know.
func located(spec *dataset.Spec, file string, err error) error {
	if e, ok := errors.AsType[*decode.Error](err); ok {
		return fmt.Errorf("dataset %s: %s: %w", spec.Name, spec.Place(file, e.Offset), e)
	}
	return fmt.Errorf("dataset %s: %s: %w", spec.Name, file, err)
}

const widest = 32 // characters of a cell

// Table has a row for each record; wide cells are clipped.
func (v *Rows) Table() *terminal.Table {
	t := terminal.NewTable(v.names...)
	for _, r := range v.rows {
		cells := make([]string, len(r))
		for i, v := range r {
			cells[i] = terminal.Clip(terminal.Cell(v), widest)
		}
		t.Row(cells...)
	}
	return t
}

// ordered marshals as one JSON object with its members in order.
type ordered struct {
	names  []string
	values []any
}

func (o ordered) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	for i, name := range o.names {
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(o.values[i])
		if err != nil {
			return nil, err
		}
		b.WriteString(map[bool]string{true: "{", false: ","}[i == 0])
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	if len(o.names) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}
