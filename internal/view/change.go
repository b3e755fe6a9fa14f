package view

import (
	"fmt"
	"io"
	"strings"

	"github.com/headrace/headrace/internal/terminal"
)

// Applied is what `dataset apply` did, or would do, with one dataset.
type Applied struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome"` // created | changed | unchanged
	DryRun  bool   `json:"dry_run"`
	Diff    string `json:"diff"`
}

// text is the outcome in words.
func (r *Applied) text() string {
	switch {
	case r.Outcome == "unchanged":
		return "is as it was"
	case r.DryRun:
		return "would be " + r.Outcome
	}
	return r.Outcome
}

// Write prints the outcome and, below it, what differs from the spec before.
func (r *Applied) Write(w io.Writer) {
	fmt.Fprintf(w, "dataset %s %s\n", r.Name, r.text())
	for line := range strings.Lines(r.Diff) {
		fmt.Fprint(w, "  ", strings.TrimRight(line, "\n"), "\n")
	}
}

// Changed is the answer of verbs that set a dataset's state.
type Changed struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome"`
}

// Deleted says what was deleted with a dataset, or would be.
type Deleted struct {
	Name    string `json:"name"`
	DryRun  bool   `json:"dry_run"`
	Deleted bool   `json:"deleted"`
	Leases  uint32 `json:"leases"`
	Counts  Counts `json:"counts"`
	// AtSource says what is removed at the source; "" is nothing.
	AtSource string `json:"at_source,omitempty"`
}

// Question is the question to a person before the deletion.
func (v *Deleted) Question() string {
	ask := fmt.Sprintf("delete dataset %s: %s settled units and %d leases are forgotten", v.Name, terminal.Grouped(v.Counts.Settled), v.Leases)
	if v.AtSource != "" {
		ask += ", and removed at the source: " + v.AtSource
	}
	return ask
}

func (v *Deleted) Write(w io.Writer) {
	verb := "deleted"
	if v.DryRun {
		verb = "would be deleted"
	}
	fmt.Fprintf(w, "dataset %s %s: %s settled units and %d leases forgotten\n", v.Name, verb, terminal.Grouped(v.Counts.Settled), v.Leases)
	if v.AtSource != "" {
		fmt.Fprintf(w, "removed at the source: %s\n", v.AtSource)
	}
}
