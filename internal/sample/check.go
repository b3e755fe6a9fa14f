package sample

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/sources"
)

// Checked is what a dataset's records were found to be.
type Checked struct {
	Name    string  `json:"name"`
	Input   string  `json:"input,omitempty"` // of a dataset with two: the kind of its source
	Records int64   `json:"records"`
	Bad     int64   `json:"bad_records"`
	Fields  []Field `json:"fields"`
	Seam    *Seam   `json:"seam,omitempty"` // of a dataset with two inputs, with the second one
	// DeletesAfter: records that were read are deleted at the source, after this time at the
	// earliest; "": never.
	DeletesAfter string `json:"deletes_after,omitempty"`
}

// Field counts the errors of one column or path.
type Field struct {
	Column  string  `json:"column"` // "" when the record as a whole is at fault
	Path    string  `json:"path"`
	Errors  int64   `json:"errors"`
	Missing int64   `json:"missing"`
	Rate    float64 `json:"rate"` // errors and missing per record
	Example string  `json:"example"`
}

// checkRows is how many rows are decoded before they are thrown away.
const checkRows = 4096

// Check decodes until n records (0: all) were read. Every bad record is counted
// by the field that it failed on; on_error: default is taken as fail, so that
// nothing is hidden.
func Check(ctx context.Context, spec *dataset.Spec, open Opener, n int64) (Checked, error) {
	strict := *spec
	strict.Decode.OnError = "fail"
	c := Checked{Name: spec.Name, Fields: []Field{}}
	if after := spec.Source.Traits().DeletesAfter; after > 0 {
		c.DeletesAfter = after.String()
	}
	r, err := openReader(&strict, open)
	if err != nil {
		return c, err
	}
	defer r.close()
	builder, err := r.dec.NewBuilder(checkRows)
	if err != nil {
		return c, err
	}
	r.bad = func(err error) error {
		if n > 0 && c.Records >= n {
			return errEnough
		}
		c.Records++
		c.add(&decode.Error{}, err.Error()) // it names the file and the offset
		return nil
	}
	err = r.walk(ctx, func(name string, dec *decode.Decoder, b *sources.Batch) error {
		for from := 0; from < b.Len(); {
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
				c.add(bad, fmt.Sprintf("%s: %v", spec.Place(name, bad.Offset), bad))
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
	slices.SortStableFunc(c.Fields, func(a, b Field) int { return int(b.Errors + b.Missing - a.Errors - a.Missing) })
	return c, err
}

// add counts one bad record. Of the first one of a field, example is shown.
func (c *Checked) add(e *decode.Error, example string) {
	c.Bad++
	i := slices.IndexFunc(c.Fields, func(f Field) bool { return f.Column == e.Column && f.Path == e.Path })
	if i < 0 {
		i = len(c.Fields)
		c.Fields = append(c.Fields, Field{Column: e.Column, Path: e.Path, Example: example})
	}
	if e.Missing {
		c.Fields[i].Missing++
	} else {
		c.Fields[i].Errors++
	}
}

// Write prints the numbers, and the first error of each field.
func (c *Checked) Write(w io.Writer) {
	of := c.Name
	if c.Input != "" {
		of += ", " + c.Input
	}
	fmt.Fprintf(w, "dataset %s: %s records, %s bad (%s)\n", of, terminal.Grouped(c.Records), terminal.Grouped(c.Bad), terminal.Percent(c.Bad, c.Records))
	if c.DeletesAfter != "" {
		fmt.Fprintf(w, "  what was trained will be deleted, %s after no kept checkpoint needs it any more\n", c.DeletesAfter)
	}
	if c.Seam != nil {
		defer c.Seam.Write(w)
	}
	if len(c.Fields) == 0 {
		return
	}
	t := terminal.NewTable("COLUMN", "PATH", "ERRORS>", "MISSING>", "RATE>", "FIRST")
	for _, f := range c.Fields {
		column := f.Column
		if column == "" {
			column = "(record)"
		}
		t.Row(column, f.Path, terminal.Grouped(f.Errors), terminal.Grouped(f.Missing), fmt.Sprintf("%.4f%%", 100*f.Rate), terminal.ClipMiddle(terminal.Cell(f.Example), 160))
	}
	t.Write(w)
}
