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

// askExcluded asks for a dataset's excluded ranges, all or the first pageSize, and for
// how many there are.
func askExcluded(ctx context.Context, c headracev1.DatasetsClient, name string, all bool) (views []Excluded, total uint64, err error) {
	views = []Excluded{}
	for page := ""; ; {
		reply, err := c.Excluded(ctx, &headracev1.ExcludedRequest{Name: name, PageSize: pageSize, PageToken: page})
		if err != nil {
			return nil, 0, err
		}
		for _, r := range reply.Ranges {
			views = append(views, Excluded{Partition: r.Identity, Label: r.Label, Pass: r.Pass, Segment: r.Segment, Start: r.Start, End: r.End,
				Kind: r.Kind, Reason: r.Reason, Since: time.UnixMilli(r.UnixMs).UTC().Format(time.RFC3339)})
		}
		if total, page = reply.Total, reply.NextPageToken; page == "" || !all {
			return views, total, nil
		}
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
