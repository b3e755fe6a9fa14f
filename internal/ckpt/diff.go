package ckpt

import (
	"fmt"
	"io"

	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/terminal"
)

// Difference is what one model has and the other has not.
type Difference struct {
	A           About              `json:"a"`
	B           About              `json:"b"`
	Same        bool               `json:"same"`
	Differences []audit.Difference `json:"differences"`
}

// Diff compares the models of two checkpoints.
func Diff(c, other *manifest.Checkpoint) (Difference, error) {
	diffs, err := audit.Diff(&c.Manifest.Cut, &other.Manifest.Cut)
	if err != nil {
		return Difference{}, fmt.Errorf("%s and %s cannot be compared: %w", c.Path, other.Path, err)
	}
	if diffs == nil {
		diffs = []audit.Difference{}
	}
	return Difference{A: aboutOf(c), B: aboutOf(other), Same: len(diffs) == 0, Differences: diffs}, nil
}

func (v *Difference) Write(w io.Writer) {
	fmt.Fprint(w, "A: ")
	v.A.write(w)
	fmt.Fprint(w, "B: ")
	v.B.write(w)
	fmt.Fprintln(w)
	if v.Same {
		fmt.Fprintln(w, "the same records are in both models")
		return
	}
	t := terminal.NewTable("DATASET", "PARTITION", "PASS>", "ONLY IN A>", "RECORDS>", "RANGES>", "ONLY IN B>", "RECORDS>", "RANGES>", "UNIT")
	for _, d := range v.Differences {
		t.Row(d.Dataset, d.Label, fmt.Sprint(d.Pass+1), terminal.Grouped(d.UnitsA), rows(d.RowsA), fmt.Sprint(len(d.OnlyA)), terminal.Grouped(d.UnitsB), rows(d.RowsB), fmt.Sprint(len(d.OnlyB)), d.Unit)
	}
	t.Write(w)
}

// rows of a difference; ? where neither model holds all that the other does.
func rows(n *int64) string {
	if n == nil {
		return "?"
	}
	return terminal.Grouped(*n)
}
