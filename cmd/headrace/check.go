package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/sources"
)

func (a *app) checkCommand() *cobra.Command {
	var files []string
	n := int64(100_000)
	cmd := &cobra.Command{
		Use:   "check -f FILE [-n ROWS]",
		Short: "Try a spec on its files and count errors by field; needs no master",
		Long: `Reads and decodes records of every dataset in the file, in this process, and
says how many values of each field could not be decoded, with the first example.
Exits with 1 if there was any.`,
		Example: `  headrace dataset check -f clicks.yaml -n 1000000`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.load(cmd, nil); err != nil {
				return err
			}
			if n < 0 {
				return advice.Usage.Errorf("", "-n %d: must be 0 (all) or more", n)
			}
			docs, err := a.readSpecs(files)
			if err != nil {
				return err
			}
			results := []checked{}
			for _, d := range docs {
				c, err := check(cmd.Context(), d.Spec, n)
				if err != nil {
					return err
				}
				results = append(results, c)
			}
			return a.showChecked(results)
		},
	}
	specFlag(cmd, &files)
	cmd.Flags().Int64VarP(&n, "rows", "n", n, "records to read of each dataset; 0: all")
	return cmd
}

type checked struct {
	Name    string       `json:"name"`
	Records int64        `json:"records"`
	Bad     int64        `json:"bad_records"`
	Fields  []checkField `json:"fields"`
}

type checkField struct {
	Column  string  `json:"column"` // "" when the record as a whole is at fault
	Path    string  `json:"path"`
	Errors  int64   `json:"errors"`
	Missing int64   `json:"missing"`
	Rate    float64 `json:"rate"` // errors and missing per record
	Example string  `json:"example"`
}

// checkRows is how many rows are decoded before they are thrown away.
const checkRows = 4096

// check decodes until n records (0: all) were read. Every bad record is counted
// by the field that it failed on; on_error: default is taken as fail, so that
// nothing is hidden.
func check(ctx context.Context, spec *dataset.Spec, n int64) (checked, error) {
	strict := *spec
	strict.Decode.OnError = "fail"
	c := checked{Name: spec.Name, Fields: []checkField{}}
	r, err := openReader(&strict)
	if err != nil {
		return c, err
	}
	defer r.close()
	builder, err := r.dec.NewBuilder(checkRows)
	if err != nil {
		return c, err
	}
	err = r.walk(ctx, func(name string, dec *decode.Decoder, b *sources.Batch) error {
		for from := 0; from < len(b.Recs); {
			if n > 0 && c.Records >= n {
				return errEnough
			}
			builder.Reset()
			limit := checkRows
			if n > 0 {
				limit = int(min(checkRows, n-c.Records))
			}
			took, err := dec.Append(builder, b, from, limit)
			from, c.Records = from+took, c.Records+int64(took)
			bad, ok := errors.AsType[*decode.Error](err)
			switch {
			case ok:
				c.add(spec, name, bad)
				from, c.Records = from+1, c.Records+1
			case err != nil:
				return located(spec, name, err)
			}
		}
		return nil
	})
	for i := range c.Fields {
		c.Fields[i].Rate = float64(c.Fields[i].Errors+c.Fields[i].Missing) / float64(c.Records)
	}
	slices.SortStableFunc(c.Fields, func(a, b checkField) int { return int(b.Errors + b.Missing - a.Errors - a.Missing) })
	return c, err
}

func (c *checked) add(spec *dataset.Spec, file string, e *decode.Error) {
	c.Bad++
	i := slices.IndexFunc(c.Fields, func(f checkField) bool { return f.Column == e.Column && f.Path == e.Path })
	if i < 0 {
		i = len(c.Fields)
		c.Fields = append(c.Fields, checkField{Column: e.Column, Path: e.Path,
			Example: fmt.Sprintf("%s: %v", spec.Place(file, e.Offset), e)})
	}
	if e.Missing {
		c.Fields[i].Missing++
	} else {
		c.Fields[i].Errors++
	}
}

func (a *app) showChecked(results []checked) error {
	bad := int64(0)
	for _, r := range results {
		bad += r.Bad
	}
	err := a.show(results, func(w io.Writer) {
		for _, r := range results {
			fmt.Fprintf(w, "dataset %s: %s records, %s bad (%s)\n", r.Name, terminal.Grouped(r.Records), terminal.Grouped(r.Bad), terminal.Percent(r.Bad, r.Records))
			if len(r.Fields) == 0 {
				continue
			}
			t := terminal.NewTable("COLUMN", "PATH", "ERRORS>", "MISSING>", "RATE>", "FIRST")
			for _, f := range r.Fields {
				column := f.Column
				if column == "" {
					column = "(record)"
				}
				t.Row(column, f.Path, terminal.Grouped(f.Errors), terminal.Grouped(f.Missing), fmt.Sprintf("%.4f%%", 100*f.Rate), terminal.Clip(terminal.Cell(f.Example), 100))
			}
			t.Write(w)
		}
	})
	if err == nil && bad > 0 {
		return advice.Failed.Errorf("a default on a column mends missing values; on_error: default mends bad ones too",
			"records that can not be decoded: %s", terminal.Grouped(bad))
	}
	return err
}
