package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/view"
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

func (a *app) datasetStatus(ctx context.Context, c *client, name string, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	v, err := view.AskStatus(ctx, c, name, all)
	if err != nil {
		return err
	}
	return a.show(v, v.Write)
}

func (a *app) job(ctx context.Context, c *client) (view.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := c.Job(ctx, &headracev1.JobRequest{})
	if err != nil {
		return view.Job{}, err
	}
	v := view.JobOf(reply)
	v.TLS = a.cfg.TLS.Enabled() // as the master has it, or it would not have answered
	return v, nil
}

func (a *app) jobStatus(ctx context.Context, c *client) error {
	v, err := a.job(ctx, c)
	if err != nil {
		return err
	}
	return a.show(v, func(w io.Writer) { v.Write(w, 0) })
}
