package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/suggest"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/sources"
)

func (a *app) peekCommand() *cobra.Command {
	n := 5
	var columns []string
	cmd := &cobra.Command{
		Use:   "peek NAME [-n ROWS] [--columns A,B]",
		Short: "The first rows of a dataset, decoded; no lease is taken",
		Long: `Reads and decodes the first rows in this process, from this machine's files:
what a trainer would get. Nothing is leased and nothing changes.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeDatasets,
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, args []string) error {
			if n < 1 || n > 10_000 {
				return advice.Usage.Errorf("", "-n %d: must be from 1 to 10000", n)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			d, err := c.Describe(ctx, &headracev1.DescribeRequest{Name: args[0]})
			cancel()
			if err != nil {
				return err
			}
			spec, err := dataset.FromJSON([]byte(d.SpecJson))
			if err != nil {
				return err
			}
			return a.peek(cmd.Context(), spec, n, columns)
		}),
	}
	cmd.Flags().IntVarP(&n, "rows", "n", n, "rows to show")
	cmd.Flags().StringSliceVar(&columns, "columns", nil, "only these columns")
	return cmd
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

func (a *app) peek(ctx context.Context, spec *dataset.Spec, n int, columns []string) error {
	r, err := openReader(spec)
	if err != nil {
		return err
	}
	defer r.close()
	names := r.dec.Schema().Names()
	for _, want := range columns {
		if !slices.Contains(names, want) {
			return advice.NotFound.Errorf(suggest.Hint(want, names, "columns"), "dataset %s has no column %s", spec.Name, want)
		}
	}
	if len(columns) > 0 {
		if r.dec, err = decode.Compile(r.spec, decode.WithColumns(columns)); err != nil {
			return err
		}
		names = r.dec.Schema().Names()
	}
	rows, err := r.rows(ctx, n)
	if err != nil {
		return err
	}
	out := make([]ordered, len(rows))
	for i := range rows {
		out[i] = ordered{names, rows[i]}
	}
	return a.show(out, func(w io.Writer) { peekTable(names, rows).Write(w) })
}

// rows decodes the first n rows.
func (r *reader) rows(ctx context.Context, n int) ([][]any, error) {
	builder, err := r.dec.NewBuilder(n)
	if err != nil {
		return nil, err
	}
	err = r.walk(ctx, func(name string, dec *decode.Decoder, b *sources.Batch) error {
		for from := 0; from < len(b.Recs); {
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

func peekTable(names []string, rows [][]any) *terminal.Table {
	t := terminal.NewTable(names...)
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, v := range r {
			cells[i] = terminal.Clip(terminal.Cell(v), widest)
		}
		t.Row(cells...)
	}
	return t
}
