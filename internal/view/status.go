package view

import (
	"context"
	"fmt"
	"io"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

type Status struct {
	Dataset
	Partition []Partition `json:"partition"`
	More      bool        `json:"more"` // there are partitions that are not shown

	Excluded       []Excluded `json:"excluded"`
	ExcludedRanges uint64     `json:"excluded_ranges"` // shown or not
	Dropped        []Dropped  `json:"dropped"`
	DroppedRanges  uint64     `json:"dropped_ranges"` // shown or not
}

// AskStatus asks for the state of one dataset: all of its partitions and excluded
// ranges, or the first pageSize of each.
func AskStatus(ctx context.Context, c headracev1.DatasetsClient, name string, all bool) (Status, error) {
	d, err := c.Describe(ctx, &headracev1.DescribeRequest{Name: name})
	if err != nil {
		return Status{}, err
	}
	v := Status{Dataset: DatasetOf(d), Partition: []Partition{}}
	for page := ""; ; {
		reply, err := c.State(ctx, &headracev1.StateRequest{Name: name, PageSize: pageSize, PageToken: page})
		if err != nil {
			return v, err
		}
		for _, p := range reply.Partitions {
			v.Partition = append(v.Partition, partitionOf(p))
		}
		if page = reply.NextPageToken; page == "" {
			break
		}
		if !all {
			v.More = true
			break
		}
	}
	out, err := askExcluded(ctx, c, name, all)
	v.Excluded, v.ExcludedRanges, v.Dropped, v.DroppedRanges = out.excluded, out.ranges, out.dropped, out.drops
	return v, err
}

// Write prints the dataset, its partitions, its leases and its excluded and dropped
// ranges.
func (v *Status) Write(w io.Writer) {
	v.Dataset.write(w)
	if len(v.Partition) > 0 {
		fmt.Fprintln(w)
		partitionTable(v.Partition, v.Unit).Write(w)
	}
	if v.More {
		fmt.Fprintln(w, "more partitions with --all")
	}
	writeLeases(w, v.Partition)
	writeExcluded(w, v.Excluded, v.ExcludedRanges)
	writeDropped(w, v.Dropped, v.DroppedRanges)
}
