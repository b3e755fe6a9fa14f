package view

import (
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Records is a number of records. Units, in contrast, measure an input in the source's own
// offsets.
type Records struct {
	Rows   int64      `json:"rows"`   // at least, if untold is not 0
	Untold int64      `json:"untold"` // units whose records were never counted
	Oldest *time.Time `json:"oldest"` // event times; null: no record has one
	Newest *time.Time `json:"newest"`
}

func RecordsOf(r cut.Tally) *Records {
	v := &Records{Rows: r.Rows, Untold: r.Untold}
	if r.Newest != 0 {
		oldest, newest := time.UnixMilli(r.Oldest).UTC(), time.UnixMilli(r.Newest).UTC()
		v.Oldest, v.Newest = &oldest, &newest
	}
	return v
}

func RecordsOfTally(t *headracev1.Tally) *Records {
	return RecordsOf(cut.Tally{Rows: t.GetRows(), Untold: t.GetUntold(), Oldest: t.GetOldest(), Newest: t.GetNewest()})
}

// Text is the number of records: "1,234", "at least 1,234", or "?".
func (v *Records) Text() string {
	switch {
	case v == nil || v.Untold > 0 && v.Rows == 0:
		return "?"
	case v.Untold > 0:
		return "at least " + terminal.Grouped(v.Rows)
	}
	return terminal.Grouped(v.Rows)
}

// Sentence is the number with the event times of the oldest and the newest record.
func (v *Records) Sentence() string {
	switch {
	case v == nil || v.Untold > 0 && v.Rows == 0:
		return "not counted"
	case v.Newest == nil:
		return v.Text()
	}
	return v.Text() + ", of " + v.OldestText() + " to " + v.NewestText()
}

func (v *Records) OldestText() string {
	if v == nil || v.Oldest == nil {
		return "-"
	}
	return moment(*v.Oldest)
}

func (v *Records) NewestText() string {
	if v == nil || v.Newest == nil {
		return "-"
	}
	return moment(*v.Newest)
}

// moment is an event time as its source has it: in UTC, to the millisecond.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
