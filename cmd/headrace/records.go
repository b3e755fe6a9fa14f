package main

import (
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/terminal"
)

// recordsView counts records, where units only say how much of an input it is.
type recordsView struct {
	Rows   int64      `json:"rows"`   // with untold: at least so many
	Untold int64      `json:"untold"` // units of whose records nobody told how many they are
	Oldest *time.Time `json:"oldest"` // event times; null: no record has one
	Newest *time.Time `json:"newest"`
}

func recordsOf(r manifest.Records) *recordsView {
	v := &recordsView{Rows: r.Rows, Untold: r.Untold}
	if r.Newest != 0 {
		oldest, newest := time.UnixMilli(r.Oldest).UTC(), time.UnixMilli(r.Newest).UTC()
		v.Oldest, v.Newest = &oldest, &newest
	}
	return v
}

func recordsOfTally(t *headracev1.Tally) *recordsView {
	return recordsOf(manifest.Records{Rows: t.GetRows(), Untold: t.GetUntold(), Oldest: t.GetOldest(), Newest: t.GetNewest()})
}

// text is how many: a number, as far as it is known.
func (v *recordsView) text() string {
	switch {
	case v == nil || v.Untold > 0 && v.Rows == 0:
		return "?"
	case v.Untold > 0:
		return "at least " + terminal.Grouped(v.Rows)
	}
	return terminal.Grouped(v.Rows)
}

// sentence says it all.
func (v *recordsView) sentence() string {
	switch {
	case v == nil || v.Untold > 0 && v.Rows == 0:
		return "not counted"
	case v.Newest == nil:
		return v.text()
	}
	return v.text() + ", of " + v.oldest() + " to " + v.newest()
}

func (v *recordsView) oldest() string {
	if v == nil || v.Oldest == nil {
		return "-"
	}
	return moment(*v.Oldest)
}

func (v *recordsView) newest() string {
	if v == nil || v.Newest == nil {
		return "-"
	}
	return moment(*v.Newest)
}

// moment is an event time as its source has it: in UTC, to the millisecond.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// rows of a difference; ? where neither model holds all that the other does.
func rows(n *int64) string {
	if n == nil {
		return "?"
	}
	return terminal.Grouped(*n)
}
