package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/memory"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/ckpt"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/view"
)

func (a *app) ckptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ckpt",
		Short: "Checkpoints: list, show, verify, pin, unpin, rm",
		Long: `Checkpoints on storage (docs/CHECKPOINTS.md). A path is a manifest, a
checkpoint's folder, or a folder of checkpoints, here or in a bucket
(s3://bucket/prefix). The verbs read the files themselves and need no master;
where one is there, they also show what its ledger says: bound, frozen, carried,
voided, or nothing.`,
		Aliases: []string{"checkpoint", "checkpoints"},
	}
	cmd.AddCommand(a.ckptListCommand(), a.ckptShowCommand(), a.ckptVerifyCommand(), a.ckptPinCommand(), a.ckptUnpinCommand(), a.ckptRmCommand())
	return cmd
}

func (a *app) ckptListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list [PATH]",
		Aliases: []string{"ls"},
		Short:   "The checkpoints of a folder, the newest first",
		Long: `Lists what is in a folder: checkpoints, the newest first (the one that was
frozen last), and after them what does not count, with the reason: half (no manifest),
damaged, or of a newer version. Files are not read; ` + "`headrace ckpt verify`" + ` does.
Checkpoints on storage stand first, then those in this node's memory, then the copies
that agents keep of other nodes' checkpoints in memory (docs/FLASH.md).
Without a path: the checkpoints that the master keeps in its ledger, also those of
which only a framework knows the file. Their ids stand under CUT.

Going back to a checkpoint reads later records again. If the source has deleted
some of them, the list says "not rewindable" (with on_loss: continue: "with a loss")
and has a line for each range. docs/CUTS.md says which sources tell.`,
		Example: `  headrace ckpt list ckpt/
  headrace ckpt list                 what the master keeps
  headrace ckpt list ckpt/ -o json
  headrace ckpt list s3://models/clicks`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.withMaster(a.listCuts)(cmd, args)
			}
			if err := a.load(cmd, nil); err != nil {
				return err
			}
			all, err := ckpt.Find(a.checkpointsOn(cmd.Context()), args[0])
			if err != nil {
				return err
			}
			book, err := a.ledger(cmd.Context())
			if err != nil {
				return err
			}
			held, err := ckpt.InMemory(memory.Root(), args[0], book)
			if err != nil {
				return err
			}
			copies, err := a.replicas(cmd.Context(), args[0], book)
			if err != nil {
				return err
			}
			views := slices.Concat(ckpt.List(all, book), held, copies)
			return a.show(views, func(w io.Writer) { ckpt.WriteList(w, views, args[0], book != nil) })
		},
	}
}

func (a *app) listCuts(cmd *cobra.Command, c *client, _ []string) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
	defer cancel()
	reply, err := c.cuts().Cuts(ctx, &headracev1.CutsRequest{})
	if err != nil {
		return err
	}
	views := []view.Cut{}
	for _, k := range reply.Cuts {
		views = append(views, view.CutOf(k))
	}
	return a.show(views, func(w io.Writer) {
		if len(views) == 0 {
			fmt.Fprintf(w, "job %s has no checkpoint: none was saved\n", reply.Job)
			return
		}
		view.WriteCuts(w, views)
	})
}

func (a *app) ckptShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show CKPT",
		Short: "One checkpoint: its files and how much input is in its model",
		Long: `Shows one checkpoint: what it is, its files, and the units of each dataset that
are in its model. For a folder of checkpoints it shows the newest.
` + "`headrace audit`" + ` tells which records.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.load(cmd, nil); err != nil {
				return err
			}
			c, err := ckpt.One(a.checkpointsOn(cmd.Context()), args[0])
			if err != nil {
				return err
			}
			book, err := a.ledger(cmd.Context())
			if err != nil {
				return err
			}
			v := ckpt.Describe(c, book)
			return a.show(v, func(w io.Writer) { v.Write(w) })
		},
	}
}

// ledger asks the master which cuts it keeps: the master that was named, or the local one
// if it runs. A local master that does not answer is left out.
func (a *app) ledger(ctx context.Context) (*ckpt.Ledger, error) {
	named := a.cfg.From("master") != ""
	if _, err := link.ReadAddress(a.cfg.State); !named && err != nil {
		return nil, nil
	}
	c, err := a.dial()
	if err != nil {
		return nil, err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := c.cuts().Cuts(ctx, &headracev1.CutsRequest{})
	if err != nil {
		if !named {
			return nil, nil
		}
		return nil, advice.FromMaster(err, c.target)
	}
	return ckpt.NewLedger(reply), nil
}

// replicas asks the master for the copies of checkpoints in memory, if ledger has reached one.
func (a *app) replicas(ctx context.Context, path string, book *ckpt.Ledger) ([]ckpt.View, error) {
	if book == nil {
		return nil, nil
	}
	c, err := a.dial()
	if err != nil {
		return nil, err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := headracev1.NewPeersClient(c.conn).List(ctx, &headracev1.ListPeersRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented: // an older master
		return nil, nil
	case err != nil:
		return nil, advice.FromMaster(err, c.target)
	}
	return ckpt.Replicas(reply, path, book), nil
}

func (c *client) cuts() headracev1.CheckpointsClient { return headracev1.NewCheckpointsClient(c.conn) }
