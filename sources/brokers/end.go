package brokers

import (
	"fmt"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// Live is the value of a spec's end for input without an end.
const Live = "never"

// EndField is the field of a spec in which End is written (sources.Kind).
var EndField = sources.End{Field: "end", Never: Live, Fixed: "latest"}

const (
	defaultRefresh = dataset.Duration(5 * time.Second)
	leastRefresh   = dataset.Duration(100 * time.Millisecond)
)

// End is where reading begins or ends. P is how the broker names a place in a partition: an
// offset, or the id of a message.
type End[P any] struct {
	At     At
	Time   time.Time    // for AtTime: the first record of that time or later
	Places map[string]P // by partition, as people write it; At is for the other partitions
}

// At is a place that has the same name in all partitions.
type At uint8

const (
	Earliest At = iota + 1 // the first record that is still there
	Latest                 // after the last record when the partition is first listed
	AtTime
	Never // only as an end: reading goes on as records come
)

// Of returns the place that the spec gives for a partition, if it gives one. If a partition has
// several names, the first one that is in Places counts.
func (e End[P]) Of(names ...string) (place P, given bool) {
	for _, n := range names {
		if place, given = e.Places[n]; given {
			break
		}
	}
	return place, given
}

// EndOf reads the start or the end of a spec.
func EndOf[P any](kind, text string, places map[string]P) (End[P], error) {
	e := End[P]{Places: places}
	switch text {
	case "earliest":
		e.At = Earliest
	case "latest":
		e.At = Latest
	case Live:
		e.At = Never
	default:
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return e, fmt.Errorf("%s: %q is neither earliest, latest nor a time", kind, text)
		}
		e.At, e.Time = AtTime, t
	}
	return e, nil
}

// CheckEnd checks the start or the end of a spec. hint follows the example of a time.
func CheckEnd(c *dataset.Check, kind, field, text, hint string) {
	at := kind + "." + field
	switch {
	case text == "latest", text == "earliest" && field == "start":
		return
	case text == "earliest":
		c.Fail(at, text, "leaves nothing to read", "use latest or a time")
		return
	}
	if _, err := time.Parse(time.RFC3339, text); err != nil {
		c.Fail(at, text, "is neither earliest, latest nor a time", "as in 2026-01-31T08:00:00Z"+hint)
	}
}

// FillRefresh sets how often new partitions of a live input are looked for.
func FillRefresh(end string, refresh *dataset.Duration) {
	if end == Live && *refresh == 0 {
		*refresh = defaultRefresh
	}
}

// CheckRefresh checks how often new partitions are looked for.
func CheckRefresh(c *dataset.Check, kind, end string, refresh dataset.Duration) {
	switch {
	case end == Live && refresh < leastRefresh:
		c.Fail(kind+".refresh", refresh.String(), "is too often", "use "+leastRefresh.String()+" or more; the default is "+defaultRefresh.String())
	case end != Live && refresh != 0:
		c.Fail(kind+".refresh", refresh.String(), "is for input without an end", "remove it, or set end: never")
	}
}

// Later returns copies of the segments with ID > after.
func Later(all []sources.Segment, after int64) []sources.Segment {
	var some []sources.Segment
	for _, g := range all {
		if g.ID > after {
			some = append(some, g)
		}
	}
	return some
}
