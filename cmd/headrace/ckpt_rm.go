package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/spf13/cobra"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/ckpt"
	"github.com/headrace/headrace/internal/link"
)

// removing has the flags of rm.
type removing struct {
	keep            int
	dryRun, offline bool
	yes             bool
}

func (a *app) ckptRmCommand() *cobra.Command {
	r := &removing{}
	cmd := &cobra.Command{
		Use:   "rm CKPT...",
		Short: "Remove checkpoints: first from the ledger, then the manifest, then the data",
		Long: `Removes checkpoints. First the master forgets a checkpoint. Then its manifest is
removed durably, so that it does not count any more, and then its data. Some always
stay, and rm says why: the newest that verifies (with private: the newest of each
rank), the newest that is bound, a pinned one, one that another needs, and one of a
newer version.

With --keep N the paths are folders of checkpoints, and all but the newest N are
removed. A checkpoint that the master keeps may be named by its id, as ` + "`ckpt list`" + `
without a path shows it. If its files are gone already, because a framework has removed
them, the master forgets it.`,
		Example: `  headrace ckpt rm ckpt/step-0000000100-9f3c00000000abcd
  headrace ckpt rm ckpt/ --keep 3 --dry-run
  headrace ckpt rm 9f3c00000000abcd         as headrace ckpt list names it`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.load(cmd, nil); err != nil {
				return err
			}
			if cmd.Flags().Changed("keep") && r.keep < 1 {
				return advice.Usage.Errorf("the newest that verifies always stays", "--keep %d: must be at least 1", r.keep)
			}
			return a.remove(cmd.Context(), args, r)
		},
	}
	f := cmd.Flags()
	f.IntVar(&r.keep, "keep", 0, "remove all but the newest N of each folder")
	f.BoolVar(&r.dryRun, "dry-run", false, "say what would be removed, and remove nothing")
	f.BoolVar(&r.offline, "offline", false, "ask no master: its ledger learns of the removal at the next restore")
	f.BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) remove(ctx context.Context, paths []string, r *removing) (err error) {
	asked := ckpt.Removal{On: a.checkpointsOn(ctx), Keep: r.keep, Watch: a.watch}
	if !r.offline {
		if asked.Ledger, err = a.ledger(ctx); err != nil {
			return err
		}
	}
	all, err := asked.Choose(ctx, paths)
	if err != nil {
		return err
	}
	going := all.Going()
	if going > 0 && !r.dryRun {
		forget, closing, err := a.forgetter(ctx, all, r.offline)
		if err != nil {
			return err
		}
		defer closing()
		if err := a.confirm(ctx, fmt.Sprintf("remove %d checkpoints", going), r.yes); err != nil {
			return err
		}
		if err := all.Remove(ctx, asked.On, forget); err != nil {
			return err
		}
	}
	if err := a.show(all.Views(r.dryRun), func(w io.Writer) { ckpt.WriteRemoved(w, all.Views(r.dryRun)) }); err != nil {
		return err
	}
	if kept := len(all) - going; kept > 0 && r.keep == 0 {
		return fmt.Errorf("%d of %d checkpoints stay", kept, len(all))
	}
	return nil
}

// forgetter makes the master's ledger forget a cut before its files go. Without a master
// a removal is refused unless the user says --offline: as long as the ledger names a
// checkpoint that is gone, the source retains data for it in vain.
func (a *app) forgetter(ctx context.Context, all ckpt.Chosen, offline bool) (forget func(cut.ID) error, closing func(), err error) {
	if offline {
		return func(cut.ID) error { return nil }, func() {}, nil
	}
	hint := "start it, name it with --master, or say --offline to remove the files alone"
	if _, local := link.ReadAddress(a.cfg.State); a.cfg.From("master") == "" && local != nil {
		return nil, nil, advice.Unreachable.Wrap(hint, errors.New("no master runs here that could forget the checkpoints first"))
	}
	c, err := a.dial()
	if err != nil {
		return nil, nil, err
	}
	ask, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := c.cuts().Cuts(ask, &headracev1.CutsRequest{})
	if err != nil {
		c.close()
		if e, ok := errors.AsType[*advice.Error](advice.FromMaster(err, c.target)); ok && e.Kind == advice.Unreachable {
			return nil, nil, advice.Unreachable.Wrap(hint, e.Err)
		}
		return nil, nil, advice.FromMaster(err, c.target)
	}
	if err := all.OwnedBy(reply.Job, c.target.String()); err != nil {
		c.close()
		return nil, nil, err
	}
	return func(cut cut.ID) error {
		ask, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		_, err := c.cuts().Drop(ask, &headracev1.DropCutRequest{Cut: uint64(cut), Reason: "its checkpoint is removed by headrace ckpt rm"})
		return advice.FromMaster(err, c.target)
	}, c.close, nil
}
