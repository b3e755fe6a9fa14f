package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/terminal"
)

func (a *app) statusCommand() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Progress of one dataset by partition, or of the whole job",
		Long: `With a name: how far a dataset is, partition by partition, and who holds what.
Without one: the job, its agents, workers and datasets; ` + "`headrace top`" + ` keeps
that on the screen.`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeDatasets,
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, args []string) error {
			if len(args) == 0 {
				return a.jobStatus(cmd.Context(), c)
			}
			return a.datasetStatus(cmd.Context(), c, args[0], all)
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "all partitions and excluded ranges, not only the first 100")
	return cmd
}

type statusView struct {
	datasetView
	Partition []partitionView `json:"partition"`
	More      bool            `json:"more"` // there are partitions that are not shown

	Excluded       []excludedView `json:"excluded"`
	ExcludedRanges uint64         `json:"excluded_ranges"` // shown or not
}

func (a *app) datasetStatus(ctx context.Context, c *client, name string, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	d, err := c.Describe(ctx, &headracev1.DescribeRequest{Name: name})
	if err != nil {
		return err
	}
	v := statusView{datasetView: datasetOf(d), Partition: []partitionView{}}
	for page := ""; ; {
		reply, err := c.State(ctx, &headracev1.StateRequest{Name: name, PageSize: 100, PageToken: page})
		if err != nil {
			return err
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
	if v.Excluded, v.ExcludedRanges, err = excluded(ctx, c, name, all); err != nil {
		return err
	}
	return a.show(v, func(w io.Writer) {
		describeTable(w, &v.datasetView)
		if len(v.Partition) > 0 {
			fmt.Fprintln(w)
			partitionTable(v.Partition, v.Unit).Write(w)
		}
		if v.More {
			fmt.Fprintln(w, "more partitions with --all")
		}
		leaseTable(w, v.Partition)
		excludedTable(w, v.Excluded, v.ExcludedRanges)
	})
}

func partitionTable(parts []partitionView, unit string) *terminal.Table {
	t := terminal.NewTable("PARTITION", "PASS>", "SETTLED>", "LEASED>", "PENDING>", "LEASES>", "ACKED TO HEAD>", "LEASED TO HEAD>", "PLANNED TO HEAD>", "KEPT FOR>")
	for _, p := range parts {
		mark := ""
		if p.Distances.Estimated {
			mark = "~"
		}
		t.Row(p.Label, fmt.Sprint(p.Pass+1), terminal.Amount(p.Counts.Settled, unit), terminal.Amount(p.Counts.Leased, unit), terminal.Amount(p.Counts.Pending, unit),
			fmt.Sprint(p.Leases), mark+terminal.Amount(p.Distances.Acked, unit), mark+terminal.Amount(p.Distances.Leased, unit), mark+terminal.Amount(p.Distances.Planned, unit), p.Retention.text())
	}
	return t
}

func leaseTable(w io.Writer, parts []partitionView) {
	t := terminal.NewTable("LEASE", "PARTITION", "AGENT", "RANK>", "SEGMENT>", "START>", "ACKED>", "END>", "AGE>")
	for _, p := range parts {
		for _, l := range p.Lease {
			t.Row(l.Token, p.Label, l.Agent, fmt.Sprint(l.Rank), fmt.Sprint(l.Segment), fmt.Sprint(l.Start), fmt.Sprint(l.Prefix),
				fmt.Sprint(l.End), terminal.Ago(l.AgeSeconds))
		}
	}
	if !t.Empty() {
		fmt.Fprintln(w)
		t.Write(w)
	}
}

func (a *app) job(ctx context.Context, c *client) (jobView, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := c.Job(ctx, &headracev1.JobRequest{})
	if err != nil {
		return jobView{}, err
	}
	return jobOf(reply), nil
}

func (a *app) jobStatus(ctx context.Context, c *client) error {
	v, err := a.job(ctx, c)
	if err != nil {
		return err
	}
	return a.show(v, func(w io.Writer) { writeJob(w, &v, 0) })
}
