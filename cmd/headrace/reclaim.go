package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/view"
)

func (a *app) reclaimCommand() *cobra.Command {
	dry, yes := false, false
	cmd := &cobra.Command{
		Use:   "reclaim RANK",
		Short: "Take back what an idle process holds, without ending it",
		Long: `Takes back all rows that the process of RANK holds, and gives them to the ranks that
wait. Example: the rows of a notebook whose user is away. The process may run on, but
it is fenced: its next call raises headrace.Fenced, and it cannot save any more. The
records that it stepped after its newest checkpoint come again. It goes on after
headrace.shutdown(), init() and restore().

Where the model is private, this is about one rank. Where it is replicated, the whole
group has to start again. Where it is shared, the verb is refused, because rows in the
process's hands may be in the model already: end the process, or close its stream.
` + "`headrace status`" + ` shows the ranks.`,
		Example: `  headrace reclaim 0 --dry-run
  headrace reclaim 0 --yes`,
		Args: cobra.ExactArgs(1),
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, args []string) error {
			rank, err := strconv.ParseUint(args[0], 10, 32)
			if err != nil {
				return advice.Usage.Errorf("`headrace status` shows the ranks that have a process", "%q is not the number of a rank", args[0])
			}
			return a.reclaim(cmd.Context(), c, uint32(rank), dry, yes)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&dry, "dry-run", false, "say what would be taken back, and change nothing")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) reclaim(ctx context.Context, c *client, rank uint32, dry, yes bool) error {
	job, err := a.job(ctx, c)
	if err != nil {
		return err
	}
	ask := func(incarnation uint64, dry bool) (*view.Reclaimed, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		reply, err := c.Reclaim(ctx, &headracev1.ReclaimRequest{Job: job.Job, Rank: rank, Incarnation: incarnation, DryRun: dry})
		if err != nil {
			return nil, err
		}
		return view.ReclaimedOf(reply, rank, !dry), nil
	}
	v, err := ask(0, true)
	if err != nil {
		return err
	}
	if !dry {
		if a.cfg.Output == "table" && !yes {
			v.Write(a.err)
		}
		if err := a.confirm(ctx, fmt.Sprintf("take back what rank %d holds", rank), yes); err != nil {
			return err
		}
		if v, err = ask(v.Process(), false); err != nil { // of the process that was shown, no newer one
			return err
		}
	}
	return a.show(v, v.Write)
}
