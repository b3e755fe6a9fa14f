package view

import (
	"fmt"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/terminal"
)

// Retention says how soon the broker deletes the oldest record that is still needed. For a
// dataset it is that of its nearest partition.
type Retention struct {
	Partition string  `json:"partition"` // its identity
	Label     string  `json:"label"`     // what people call it
	Records   int64   `json:"records"`
	Seconds   float64 `json:"seconds"` // 0 with never
	Never     bool    `json:"never"`
	By        string  `json:"by"` // age | size | movement; deleted: it is gone
	Warn      bool    `json:"warn"`
	Blind     string  `json:"blind"` // why the forecast knows less than it could
}

func retentionOf(r *headracev1.Retention) *Retention {
	if r == nil {
		return nil
	}
	return &Retention{Partition: r.Identity, Label: r.Label, Records: r.Records, Seconds: r.Seconds, Never: r.Never, By: r.By, Warn: r.Warn, Blind: r.Blind}
}

// text is the time that is left, with "!" if it is too short.
func (r *Retention) text() string {
	switch {
	case r == nil:
		return "-"
	case r.Never && r.Blind != "":
		return "?"
	case r.Never:
		return "always"
	case r.By == "deleted":
		return "deleted !"
	case r.Warn:
		return rough(r.Seconds) + " !"
	}
	return rough(r.Seconds)
}

// sentence is what describe says.
func (r *Retention) sentence(unit string) string {
	why := ""
	if r.Blind != "" {
		why = " (" + r.Blind + ")"
	}
	if r.Never {
		return fmt.Sprintf("%s before the oldest needed record, and nothing is known to delete it%s", terminal.Amount(r.Records, unit), why)
	}
	if r.By == "deleted" {
		return fmt.Sprintf("the oldest needed record of %s is deleted already%s", r.Label, why)
	}
	return fmt.Sprintf("the oldest needed record for %s at least, by %s; %s before it%s; nearest in %s", r.text(), r.By, terminal.Amount(r.Records, unit), why, r.Label)
}

// rough is a time in two units at most.
func rough(seconds float64) string {
	d := time.Duration(min(seconds, 1e9) * float64(time.Second))
	switch day := 24 * time.Hour; {
	case d >= 2*day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return d.Round(100 * time.Millisecond).String()
}
