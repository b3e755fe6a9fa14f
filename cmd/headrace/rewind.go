package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/ckpt"
)

func (a *app) rewindCommand() *cobra.Command {
	r, yes := &ckpt.Rewinding{Ask: callTimeout, Verify: a.verifies}, false
	cmd := &cobra.Command{
		Use:   "rewind NAME --to CKPT",
		Short: "Take a job back to a checkpoint",
		Long: `Takes the job NAME back to a checkpoint: everything that is not in its model is
pending again, and excluded records stay excluded. Later checkpoints do not count any
more. Trainers of that model are fenced and have to start again. Brokers are told
the new progress before the verb ends.

Records that the source has deleted cannot be read again. If the checkpoint needs
some of them, on_loss: stop refuses the rewind and names the ranges and what to do;
on_loss: continue excludes them. --dry-run tells which.

--to is a manifest, a checkpoint's folder, the id of a checkpoint that the master keeps
(16 digits, under CUT in ` + "`headrace ckpt list`" + `), or ` + "`start`" + `. The files of a checkpoint
are verified first, unless a framework keeps the records in a file of its own, which
Headrace cannot see.`,
		Example: `  headrace rewind ctr --to ckpt/step-0000000100-9f3c00000000abcd --dry-run
  headrace rewind ctr --to start`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.To == "" {
				return advice.Usage.Errorf("as in `headrace rewind "+args[0]+" --to ckpt/step-...`", "--to names no checkpoint")
			}
			if err := a.load(cmd, map[string]string{"job": args[0]}); err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			return advice.FromMaster(a.rewind(cmd.Context(), c, args[0], r, yes), c.target)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.To, "to", "", "the checkpoint")
	f.BoolVar(&r.DryRun, "dry-run", false, "say what would be read again, and change nothing")
	f.BoolVar(&r.Unverified, "no-verify", false, "do not read the checkpoint's files first")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) rewind(ctx context.Context, c *client, job string, r *ckpt.Rewinding, yes bool) error {
	r.On = a.checkpointsOn(ctx)
	r.Confirm = func(planned *ckpt.Rewound) error {
		if a.cfg.Output == "table" && !yes {
			planned.Write(a.err)
		}
		return a.confirm(ctx, fmt.Sprintf("rewind job %s to %s", job, r.To), yes)
	}
	v, err := r.Run(ctx, c.cuts(), job)
	if err != nil {
		return err
	}
	return a.show(v, v.Write)
}

// verifies returns why a checkpoint does not verify. It shows the progress if this takes long.
func (a *app) verifies(ctx context.Context, c *manifest.Checkpoint) error {
	return ckpt.Verifies(ctx, a.checkpointsOn(ctx), c, a.watch)
}
