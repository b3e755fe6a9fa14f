package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/view"
)

func (a *app) ckptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ckpt",
		Short: "Checkpoints: list, show, verify, pin, unpin, rm",
		Long: `Checkpoints on storage (docs/CHECKPOINTS.md). A path is a manifest, a
checkpoint's folder, or a folder of checkpoints. The verbs read the files
themselves and need no master; where one is there, they also show what its
ledger says: bound, frozen, carried, voided, or nothing.`,
		Aliases: []string{"checkpoint", "checkpoints"},
		Args:    noSuchVerb,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
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
Without a path: the cuts that the master keeps.

Where the source has deleted what would be read again after going back to one,
it says "not rewindable", or "with a loss" where on_loss: continue is set, and has
a line for each range (docs/CUTS.md says which sources tell).`,
		Example: `  headrace ckpt list ckpt/
  headrace ckpt list                 what the master keeps
  headrace ckpt list ckpt/ -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.withMaster(a.listCuts)(cmd, args)
			}
			if err := a.load(cmd, nil); err != nil {
				return err
			}
			all, err := find(args[0])
			if err != nil {
				return err
			}
			book, err := a.ledger(cmd.Context())
			if err != nil {
				return err
			}
			views := []ckptView{}
			for i := range all {
				views = append(views, ckptOf(&all[i], book))
			}
			return a.show(views, func(w io.Writer) {
				if len(views) == 0 {
					fmt.Fprintf(w, "no checkpoints in %s\n", args[0])
					return
				}
				ckptTable(views, book != nil).Write(w)
				for _, v := range views {
					if v.Reason != "" {
						fmt.Fprintf(w, "%s: %s\n", v.Path, v.Reason)
					}
					v.Gone.List(w, v.Step, v.Rank)
				}
			})
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
			fmt.Fprintf(w, "job %s keeps no cuts: no checkpoint was saved\n", reply.Job)
			return
		}
		view.WriteCuts(w, views)
	})
}

func (a *app) ckptShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show CKPT",
		Short: "One checkpoint: its files and what is in its cut",
		Long: `Shows one checkpoint: what it is, its files, and the units of each dataset that
are in its model. For a folder of checkpoints it shows the newest.
` + "`headrace audit`" + ` tells which records.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.load(cmd, nil); err != nil {
				return err
			}
			c, err := one(args[0])
			if err != nil {
				return err
			}
			book, err := a.ledger(cmd.Context())
			if err != nil {
				return err
			}
			v := showOf(c, book)
			return a.show(v, func(w io.Writer) { v.write(w) })
		},
	}
}

// find lists the checkpoints that a path means.
func find(path string) ([]manifest.Checkpoint, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	all, err := manifest.Find(manifest.OS{}, abs)
	hint := "a path is a manifest (" + manifest.FileName + "), a checkpoint's folder, or a folder of checkpoints"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, advice.NotFound.Errorf(hint, "%s: no such file or folder", path)
	case errors.Is(err, syscall.ENOTDIR):
		return nil, advice.NotFound.Errorf(hint, "%s: a file that is no manifest", path)
	}
	return all, err
}

// one is the checkpoint that a path means: of several the newest. It counts.
func one(path string) (*manifest.Checkpoint, error) {
	all, err := find(path)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, advice.NotFound.Errorf("`headrace ckpt list` shows what is in a folder", "%s: no checkpoint", path)
	}
	if c := &all[0]; c.Err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, c.Err)
	}
	return &all[0], nil
}

// exactly is one for verbs that change something: they do not choose.
func exactly(path string) (*manifest.Checkpoint, error) {
	all, err := find(path)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, advice.NotFound.Errorf("", "%s: no checkpoint", path)
	case len(all) > 1:
		return nil, advice.Usage.Errorf("name one of them, like "+all[0].Folder(), "%s holds %d checkpoints", path, len(all))
	}
	return &all[0], nil
}

// book is what the ledger says of cuts; nil: nobody was asked.
type book struct {
	job   string
	cuts  map[manifest.CutID]view.Cut
	where link.Target
}

// ledger asks the master what it keeps: the one that was named, or the local one
// if it runs. A local one that does not answer is left out.
func (a *app) ledger(ctx context.Context) (*book, error) {
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
	b := &book{job: reply.Job, cuts: map[manifest.CutID]view.Cut{}, where: c.target}
	for _, k := range reply.Cuts {
		b.cuts[manifest.CutID(k.Cut)] = view.CutOf(k)
	}
	return b, nil
}

// of is what the ledger says of one checkpoint.
func (b *book) of(m *manifest.Manifest) string {
	switch {
	case b == nil:
		return ""
	case m.Job != b.job:
		return "another job's"
	}
	if k, ok := b.cut(m); ok {
		return k.State
	}
	return "unknown"
}

// cut is the ledger's of one checkpoint, if it has it.
func (b *book) cut(m *manifest.Manifest) (k view.Cut, ok bool) {
	if b != nil && m.Job == b.job {
		k, ok = b.cuts[m.Cut.ID]
	}
	return k, ok
}

// behind are the cuts that are to be forgotten before a checkpoint goes. A manifest that
// can not be read names none: then what the ledger has bound at its path, but for the
// newest, of which a restore has to say that it is gone before anybody starts over.
func (b *book) behind(c *manifest.Checkpoint) (all []manifest.CutID) {
	if c.Manifest != nil {
		return []manifest.CutID{c.Manifest.Cut.ID}
	}
	if b != nil {
		for id, k := range b.cuts {
			if k.Path == c.Path && !k.Newest {
				all = append(all, id)
			}
		}
	}
	return all
}

// byCut takes the ids of cuts out of paths: of one whose checkpoint is there its path
// stands in its place; of one whose files are gone only the ledger has to know.
func (b *book) byCut(paths []string, r *removal) (rest []string, gone []doomed) {
	for _, path := range paths {
		id, err := manifest.ParseCutID(path)
		if _, there := os.Lstat(path); err != nil || there == nil || b == nil || r.keep > 0 {
			rest = append(rest, path)
			continue
		}
		k, kept := b.cuts[id]
		_, err = os.Lstat(k.Path)
		switch {
		case !kept:
			rest = append(rest, path)
		case k.Path != "" && !errors.Is(err, fs.ErrNotExist):
			rest = append(rest, k.Path)
		default:
			d := doomed{c: &manifest.Checkpoint{Path: cmp.Or(k.Path, path)}, cuts: []manifest.CutID{id}, gone: true, step: k.Step}
			if k.Newest {
				d.stay = "it is the newest that is bound, and a restore has to say that it is gone"
			}
			gone = append(gone, d)
		}
	}
	return rest, gone
}

// newest: a restore would begin with it.
func (b *book) newest(c *manifest.Checkpoint) bool {
	return b != nil && c.Err == nil && c.Manifest.Job == b.job && b.cuts[c.Manifest.Cut.ID].Newest
}

func (c *client) cuts() headracev1.CheckpointsClient { return headracev1.NewCheckpointsClient(c.conn) }

func made(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }
