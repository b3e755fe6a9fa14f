package view

import (
	"fmt"
	"io"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/sources"
)

// Gone lists the ranges that going back to a checkpoint would need and the source has deleted.
type Gone struct {
	Ranges  []GoneRange `json:"ranges"` // the first of them
	More    uint32      `json:"more"`   // ranges that are not among them
	Units   int64       `json:"units"`  // in all of them, passes added up
	AtLeast bool        `json:"at_least"`
}

type GoneRange struct {
	Dataset   string `json:"dataset"`
	Partition string `json:"partition"` // its identity
	Label     string `json:"label"`     // what people call it
	Pass      uint32 `json:"pass"`
	Passes    uint32 `json:"passes"` // number of passes that miss the range, from Pass on
	Segment   int64  `json:"segment"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Unit      string `json:"unit"`
	Then      string `json:"then"` // excluded | stops
	Whole     bool   `json:"whole"`
}

// GoneOf is nil if nothing is known to be gone.
func GoneOf(g *headracev1.Gone) *Gone {
	if g == nil {
		return nil
	}
	v := &Gone{Ranges: []GoneRange{}, More: g.More, Units: g.Units, AtLeast: g.AtLeast}
	for _, r := range g.Ranges {
		then := "excluded"
		if r.Stops {
			then = "stops"
		}
		v.Ranges = append(v.Ranges, GoneRange{r.Dataset, r.Identity, r.Partition, r.Pass, r.Passes, r.Segment, r.Start, r.End, r.Unit, then, r.Whole})
	}
	return v
}

// rewindable reports whether a rewind to a cut is possible. It is not if the cut was
// voided, or if a dataset would stop.
func rewindable(k *headracev1.CutState) bool { return k.State != "voided" && !k.Gone.GetStops() }

// Standing is the state of a cut in words.
func Standing(state string, can bool, gone *Gone) string {
	switch {
	case state == "voided" || gone == nil:
		return state
	case can:
		return state + ", with a loss"
	}
	return state + ", not rewindable"
}

// Write has a line for each range.
func (v *Gone) Write(w io.Writer, indent string) {
	if v == nil {
		return
	}
	for _, r := range v.Ranges {
		passes := ""
		switch {
		case r.Passes > 1:
			passes = fmt.Sprintf(" passes %d to %d", r.Pass+1, r.Pass+r.Passes)
		case r.Pass > 0:
			passes = fmt.Sprintf(" pass %d", r.Pass+1)
		}
		then := "it stops the dataset"
		switch {
		case r.Whole:
			then = "the topic was deleted or made again: it stops the dataset, whatever on_loss says"
		case r.Then == "excluded":
			then = "it becomes excluded"
		}
		fmt.Fprintf(w, "%s%s [%d, %d)%s of dataset %s, %s: %s\n", indent, r.Label, r.Start, r.End, passes, r.Dataset, inUnits(r.End-r.Start, r.Unit), then)
	}
	if v.More > 0 {
		fmt.Fprintf(w, "%s%d more ranges, %s in all\n", indent, v.More, inUnits(v.Units, v.Ranges[0].Unit))
	}
	if v.AtLeast {
		fmt.Fprintf(w, "%sand perhaps more: there are too many blocks to look at all of them\n", indent)
	}
}

// List prints the lines with the checkpoint that they belong to.
func (v *Gone) List(w io.Writer, step int64, rank *uint32) {
	of := fmt.Sprintf("step %d", step)
	if rank != nil {
		of += fmt.Sprintf(" of rank %d", *rank)
	}
	v.Write(w, of+": deleted at the source: ")
}

func inUnits(n int64, unit string) string {
	switch unit {
	case sources.Bytes:
		return terminal.Amount(n, unit)
	case sources.Entries:
		return terminal.Grouped(sources.InUnits(unit, n)) + " entries"
	}
	return terminal.Grouped(n) + " offsets"
}
