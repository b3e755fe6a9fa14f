package view

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/terminal"
)

type Counts struct {
	Listed   int64 `json:"listed"`
	Planned  int64 `json:"planned"`
	Pending  int64 `json:"pending"`
	Leased   int64 `json:"leased"`
	Settled  int64 `json:"settled"`
	Acked    int64 `json:"acked"`
	Excluded int64 `json:"excluded"`
	Dropped  int64 `json:"dropped"`
}

func CountsOf(c *headracev1.Counts) Counts {
	return Counts{
		Listed: c.GetListed(), Planned: c.GetPlanned(), Pending: c.GetPending(), Leased: c.GetLeased(),
		Settled: c.GetSettled(), Acked: c.GetAcked(), Excluded: c.GetExcluded(), Dropped: c.GetDropped(),
	}
}

type Dataset struct {
	Name            string `json:"name"`
	State           string `json:"state"`
	Reason          string `json:"reason"`
	Unit            string `json:"unit"`
	Passes          uint32 `json:"passes"`
	Pass            uint32 `json:"pass"`
	Partitions      uint32 `json:"partitions"`
	ListingComplete bool   `json:"listing_complete"`
	Counts          Counts `json:"counts"`
	Live            bool   `json:"live"` // the input has no end
	// Backfill is the other input of a dataset that has two: its history.
	Backfill *Backfill `json:"backfill,omitempty"`

	// EventLagSeconds is now minus the newest event time that is acked, of the partition
	// that is furthest behind; 0: none is behind. null: no event time is known.
	EventLagSeconds *float64 `json:"event_lag_seconds"`

	Records   *Records   `json:"records"`   // in counts.acked
	Retention *Retention `json:"retention"` // null: not guarded, or nothing is needed any more
	Silence   *Silence   `json:"silence"`   // null: the source answers the master, or is not asked
	Imbalance *Imbalance `json:"imbalance"` // null: nobody waits beside a rank that stands still
	Bad       *Bad       `json:"bad"`       // null: no record is bad
}

// Backfill is how far the history of a dataset is read, in its own unit.
type Backfill struct {
	Unit   string `json:"unit"`
	Counts Counts `json:"counts"`
}

func backfillOf(d *headracev1.Dataset) *Backfill {
	if d.Backfill == nil {
		return nil
	}
	return &Backfill{d.BackfillUnit, CountsOf(d.Backfill)}
}

// sentence says how much of the history is settled.
func (b *Backfill) sentence() string {
	return fmt.Sprintf("%s of %s settled (%s)", terminal.Amount(b.Counts.Settled, b.Unit), terminal.Amount(b.Counts.Listed, b.Unit), b.percent())
}

func (b *Backfill) percent() string { return terminal.Percent(b.Counts.Settled, b.Counts.Listed) }

func DatasetOf(d *headracev1.Dataset) Dataset {
	return Dataset{
		Name: d.Name, State: d.State, Reason: d.Reason, Unit: d.Unit, Passes: d.Passes, Pass: d.Pass,
		Partitions: d.Partitions, ListingComplete: d.ListingComplete, Counts: CountsOf(d.Counts),
		Records: RecordsOfTally(d.Records), Retention: retentionOf(d.Retention),
		Silence: silenceOf(d.Silence), Imbalance: imbalanceOf(d.Imbalance), Bad: badOf(d.Bad),
		Live: d.Live, EventLagSeconds: d.EventLagSeconds, Backfill: backfillOf(d),
	}
}

// progress is the settled part of all passes, when the whole is known.
func (d *Dataset) progress() string {
	if d.State == "done" {
		return "100.0%"
	}
	p := terminal.Percent(d.Counts.Settled, d.Counts.Listed)
	behind := d.Counts.Listed - d.Counts.Settled
	switch {
	case d.Live && behind <= 0:
		p = "caught up"
		if d.Silence != nil {
			p += " with what was listed before"
		}
	case d.Live:
		p = terminal.Amount(behind, d.Unit) + " behind"
	case p == "-":
	case d.Silence != nil && !d.ListingComplete:
		p += " of what was listed before"
	case !d.ListingComplete:
		p += " of what is listed so far"
	}
	return p
}

// short is progress for a narrow table. An input without an end has no percentage.
func (d *Dataset) short() string {
	if d.Live && d.State != "done" {
		return d.progress()
	}
	return terminal.Percent(d.Counts.Settled, d.Counts.Listed)
}

// lag is the event-time lag for people.
func (d *Dataset) lag() string {
	switch {
	case d.EventLagSeconds == nil:
		return "-"
	case *d.EventLagSeconds < 60:
		return fmt.Sprintf("%.1fs", *d.EventLagSeconds)
	}
	return terminal.Uptime(*d.EventLagSeconds)
}

// AtStart tells the user of a second run what was there before: the dataset is done,
// has failed, or goes on. It is "" for a dataset that begins. again: its model is not shared,
// and no checkpoint is kept, so the next trainers train everything again.
func (d *Dataset) AtStart(again bool) string {
	switch {
	case again && d.State != "failed" && d.Counts.Settled > 0:
		return fmt.Sprintf("dataset %s was read before (%s records), and no checkpoint keeps what was learned: all of it is trained again. A headrace.Checkpointer keeps it (docs/CHECKPOINTS.md)", d.Name, d.Records.Text())
	case d.State == "done":
		return fmt.Sprintf("dataset %s was read to its end before (%s records): nothing is left to train on; `headrace run --fresh` with the same arguments starts from the beginning", d.Name, d.Records.Text())
	case d.State == "failed":
		return fmt.Sprintf("dataset %s has failed: %s; when the cause is removed: `headrace run --resume-failed`, or `headrace dataset resume %s` while a master runs", d.Name, d.Reason, d.Name)
	case d.Counts.Settled > 0:
		return fmt.Sprintf("dataset %s goes on: %s", d.Name, d.progress())
	}
	return ""
}

// passText is the current pass of all passes, counted from 1: "2/3".
func (d *Dataset) passText() string {
	return fmt.Sprintf("%d/%d", min(d.Pass+1, max(d.Passes, 1)), max(d.Passes, 1))
}

type Description struct {
	Dataset
	Spec json.RawMessage `json:"spec"`
	YAML string          `json:"yaml"`

	Excluded       []Excluded `json:"excluded"`        // the first 100
	ExcludedRanges uint64     `json:"excluded_ranges"` // all
	Dropped        []Dropped  `json:"dropped"`         // the first 1000
	DroppedRanges  uint64     `json:"dropped_ranges"`  // all
}

// AskDescription asks for a dataset with its spec and its first excluded ranges.
func AskDescription(ctx context.Context, c headracev1.DatasetsClient, name string) (Description, error) {
	d, err := c.Describe(ctx, &headracev1.DescribeRequest{Name: name})
	if err != nil {
		return Description{}, err
	}
	v := Description{Dataset: DatasetOf(d), Spec: json.RawMessage(d.SpecJson), YAML: d.Yaml}
	if !json.Valid(v.Spec) {
		v.Spec = json.RawMessage("null")
	}
	out, err := askExcluded(ctx, c, name, false)
	v.Excluded, v.ExcludedRanges, v.Dropped, v.DroppedRanges = out.excluded, out.ranges, out.dropped, out.drops
	return v, err
}

// Write prints the dataset, its excluded ranges and its spec.
func (v *Description) Write(w io.Writer) {
	v.Dataset.write(w)
	writeExcluded(w, v.Excluded, v.ExcludedRanges)
	writeDropped(w, v.Dropped, v.DroppedRanges)
	fmt.Fprintf(w, "\n%s\n", strings.TrimRight(v.YAML, "\n"))
}

// DatasetTable has a row for each dataset.
func DatasetTable(views []Dataset) *terminal.Table {
	t := terminal.NewTable("NAME", "STATE", "PASS", "LISTED>", "LEASED>", "SETTLED>", "PROGRESS", "REASON")
	for _, d := range views {
		reason := d.Reason
		if reason == "" && d.Silence != nil {
			reason = d.Silence.sentence()
		}
		if reason == "" && d.Imbalance != nil {
			reason = d.Imbalance.sentence()
		}
		t.Row(d.Name, d.State, d.passText(), terminal.Amount(d.Counts.Listed, d.Unit), terminal.Amount(d.Counts.Leased, d.Unit),
			terminal.Amount(d.Counts.Settled, d.Unit), d.progress(), terminal.Clip(reason, 60))
		if b := d.Backfill; b != nil {
			t.Row("  backfill", "", "", terminal.Amount(b.Counts.Listed, b.Unit), terminal.Amount(b.Counts.Leased, b.Unit),
				terminal.Amount(b.Counts.Settled, b.Unit), b.percent(), "")
		}
	}
	return t
}

// write prints the dataset, one line for each of its properties.
func (d *Dataset) write(w io.Writer) {
	line := func(name, value string) { fmt.Fprintf(w, "%-11s %s\n", name, value) }
	line("dataset", d.Name)
	line("state", d.State)
	if d.Reason != "" {
		line("reason", d.Reason)
	}
	if d.Silence != nil {
		line("source", d.Silence.sentence())
	}
	if d.Imbalance != nil {
		line("stands", d.Imbalance.sentence())
	}
	line("pass", fmt.Sprintf("%s, %d partitions", d.passText(), d.Partitions))
	if d.Backfill != nil {
		line("backfill", d.Backfill.sentence())
	}
	listed := terminal.Amount(d.Counts.Listed, d.Unit)
	if !d.ListingComplete {
		listed += ", and going on"
	}
	line("listed", listed)
	line("settled", fmt.Sprintf("%s (%s): acked %s, excluded %s, dropped %s", terminal.Amount(d.Counts.Settled, d.Unit), d.progress(),
		terminal.Amount(d.Counts.Acked, d.Unit), terminal.Amount(d.Counts.Excluded, d.Unit), terminal.Amount(d.Counts.Dropped, d.Unit)))
	if d.Counts.Acked > 0 {
		line("records", d.Records.Sentence())
	}
	if d.EventLagSeconds != nil {
		line("event lag", d.lag())
	}
	if d.Bad != nil {
		line("bad", d.Bad.sentence())
	}
	if r := d.Retention; r != nil {
		line("kept", r.sentence(d.Unit))
	}
	line("leased", terminal.Amount(d.Counts.Leased, d.Unit))
	line("pending", terminal.Amount(d.Counts.Pending, d.Unit))
}
