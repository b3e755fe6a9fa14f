package starter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/sample"
	"github.com/headrace/headrace/sources"
)

// try decodes many records with the plan's spec. It corrects the columns whose later values are
// not like those of the first records.
func (p *Plan) try(ctx context.Context, folder string, open sample.Opener) error {
	if len(p.columns) == 0 && p.layout.format != "lines" && p.layout.format != "raw" {
		p.layout = layout{format: "lines"}
		if p.origin.topic {
			p.layout.format = "raw"
		}
	}
	for range 3*len(p.columns) + 1 {
		spec, err := p.parse(p.Spec(), folder)
		if err != nil {
			return err
		}
		checked, err := sample.Check(ctx, spec, open, tried)
		if _, other := errors.AsType[*decode.NoField](err); other && p.layout.header && p.origin.many {
			return advice.Failed.Errorf("one dataset is files with the same fields: look at one of them, as in `headrace init "+p.origin.file+"`, or give each kind a folder",
				"the files have different headers: %s is the first of them, and another one is different: %w", p.origin.file, err)
		}
		if err != nil {
			return err
		}
		p.Records = checked.Records
		corrected := false
		for _, f := range checked.Fields {
			if i := slices.IndexFunc(p.columns, func(c column) bool { return c.name == f.Column }); i >= 0 {
				corrected = p.columns[i].correct(f) || corrected
			} else if f.Column == "event_time" && p.eventTime != "" {
				p.eventTime, corrected = "", true
			}
		}
		if !corrected {
			for _, f := range checked.Fields {
				p.Notes = append(p.Notes, fmt.Sprintf("%d of %d records cannot be decoded: %s", f.Errors+f.Missing, checked.Records, f.Example))
			}
			return nil
		}
	}
	return nil
}

// correct changes a column so that the values that failed are read; false: nothing helps.
func (c *column) correct(f sample.Field) bool {
	changed := false
	if f.Missing > 0 && c.fill == "" {
		c.fillIn()
		c.comment = fmt.Sprintf("missing in %d records", f.Missing)
		changed = true
	}
	if f.Errors == 0 {
		return changed
	}
	switch c.dtype {
	case "string": // not UTF-8
		c.dtype, changed = "bytes", true
	case "int64":
		if c.buckets > 0 {
			return changed
		}
		if c.unsigned { // above int64
			c.hashed(1 << 20)
			break
		}
		c.dtype = "float64"
	case "float32": // too large for it, or no number
		c.dtype = "float64"
	case "float64", "bool":
		if c.role == label {
			return changed
		}
		c.hashed(1 << 20)
		c.comment = fmt.Sprintf("text in %d records", f.Errors)
		if c.fill != "" {
			c.fill = "0"
		}
	default:
		return changed
	}
	return true
}

func dtypeOf(k sources.ValueKind) string {
	switch k {
	case sources.BoolValues:
		return "bool"
	case sources.Int32Values, sources.Int64Values, sources.Uint64Values:
		return "int64"
	case sources.Float32Values:
		return "float32"
	case sources.Float64Values:
		return "float64"
	}
	return "bytes"
}
