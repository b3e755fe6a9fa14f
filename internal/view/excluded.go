package view

import (
	"context"
	"fmt"
	"io"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/terminal"
)

// Excluded is one range that is settled without being trained on. Positions are those of the
// source.
type Excluded struct {
	Partition string `json:"partition"` // its identity
	Label     string `json:"label"`     // what people call it
	Pass      uint32 `json:"pass"`
	Segment   int64  `json:"segment"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Kind      string `json:"kind"`
	Reason    string `json:"reason"`
	Since     string `json:"since"` // RFC 3339
}

// pageSize is how many ranges or partitions are shown without --all.
const pageSize = 100

// Dropped is one range that is settled and not in the model, because no full round has it
// (tail="drop"). Positions are those of the source.
type Dropped struct {
	Partition string `json:"partition"` // its identity
	Label     string `json:"label"`     // what people call it
	Pass      uint32 `json:"pass"`
	Segment   int64  `json:"segment"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Step      int64  `json:"step"` // of the last round
}

// outside has the ranges of a dataset that are settled and in no model, and their numbers.
type outside struct {
	excluded []Excluded
	ranges   uint64
	dropped  []Dropped
	drops    uint64
}

// askExcluded asks for a dataset's excluded ranges, all or the first pageSize, and for its
// first dropped ones.
func askExcluded(ctx context.Context, c headracev1.DatasetsClient, name string, all bool) (outside, error) {
	out := outside{excluded: []Excluded{}, dropped: []Dropped{}}
	for page := ""; ; {
		reply, err := c.Excluded(ctx, &headracev1.ExcludedRequest{Name: name, PageSize: pageSize, PageToken: page})
		if err != nil {
			return outside{}, err
		}
		for _, r := range reply.Ranges {
			out.excluded = append(out.excluded, Excluded{Partition: r.Identity, Label: r.Label, Pass: r.Pass, Segment: r.Segment, Start: r.Start, End: r.End,
				Kind: r.Kind, Reason: r.Reason, Since: time.UnixMilli(r.UnixMs).UTC().Format(time.RFC3339)})
		}
		if page == "" {
			for _, r := range reply.Dropped {
				out.dropped = append(out.dropped, Dropped{r.Identity, r.Label, r.Pass, r.Segment, r.Start, r.End, r.Step})
			}
			out.drops = reply.DroppedTotal
		}
		if out.ranges, page = reply.Total, reply.NextPageToken; page == "" || !all {
			return out, nil
		}
	}
}

// writeDropped prints dropped ranges, and how many more there are.
func writeDropped(w io.Writer, views []Dropped, total uint64) {
	if len(views) == 0 {
		return
	}
	t := terminal.NewTable("DROPPED: NOT IN THE MODEL", "PASS>", "SEGMENT>", "START>", "END>", "AT STEP>")
	for _, x := range views {
		t.Row(x.Label, fmt.Sprint(x.Pass+1), fmt.Sprint(x.Segment), fmt.Sprint(x.Start), fmt.Sprint(x.End), fmt.Sprint(x.Step))
	}
	fmt.Fprintln(w)
	t.Write(w)
	if more := total - uint64(len(views)); more > 0 {
		fmt.Fprintf(w, "%d more dropped ranges\n", more)
	}
}

// writeExcluded prints excluded ranges, and how many more there are.
func writeExcluded(w io.Writer, views []Excluded, total uint64) {
	if len(views) == 0 {
		return
	}
	t := terminal.NewTable("EXCLUDED", "PASS>", "SEGMENT>", "START>", "END>", "SINCE", "REASON")
	for _, e := range views {
		t.Row(e.Label, fmt.Sprint(e.Pass+1), fmt.Sprint(e.Segment), fmt.Sprint(e.Start), fmt.Sprint(e.End), e.Since, e.Kind+": "+terminal.Clip(e.Reason, 80))
	}
	fmt.Fprintln(w)
	t.Write(w)
	if more := total - uint64(len(views)); more > 0 {
		fmt.Fprintf(w, "%d more excluded ranges with `headrace dataset status NAME --all`\n", more)
	}
}
