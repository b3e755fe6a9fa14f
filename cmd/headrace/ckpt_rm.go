package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/view"
)

type pinnedView struct {
	Path   string `json:"path"`
	Pinned bool   `json:"pinned"`
	Reason string `json:"reason"`
}

func (a *app) ckptPinCommand() *cobra.Command {
	reason := ""
	cmd := &cobra.Command{
		Use:   "pin CKPT",
		Short: "Keep a checkpoint whatever is removed around it",
		Long: `Pins a checkpoint: nothing of Headrace's removes it until it is unpinned, with or
without a master. The pin is a file beside the manifest.`,
		Args: cobra.ExactArgs(1),
		RunE: a.pinning(func(path string) error {
			return manifest.SetPin(manifest.OS{}, path, manifest.Pin{Pinned: time.Now().UTC().Truncate(time.Second), Reason: reason})
		}, func() pinnedView { return pinnedView{Pinned: true, Reason: reason} }),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever finds it")
	return cmd
}

func (a *app) ckptUnpinCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unpin CKPT",
		Short: "Let a pinned checkpoint be removed like others",
		Args:  cobra.ExactArgs(1),
		RunE: a.pinning(func(path string) error { return manifest.Unpin(manifest.OS{}, path) },
			func() pinnedView { return pinnedView{} }),
	}
}

func (a *app) pinning(do func(path string) error, view func() pinnedView) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.load(cmd, nil); err != nil {
			return err
		}
		c, err := exactly(args[0])
		if err != nil {
			return err
		}
		if errors.Is(c.Err, manifest.ErrHalf) {
			return fmt.Errorf("%s: %w", c.Folder(), c.Err)
		}
		if err := do(c.Path); err != nil {
			return err
		}
		v := view()
		v.Path = c.Path
		return a.show(v, func(w io.Writer) {
			word := "is not pinned any more"
			if v.Pinned {
				word = "is pinned"
			}
			fmt.Fprintf(w, "%s %s\n", c.Path, word)
		})
	}
}

// removal is what rm was told.
type removal struct {
	keep            int
	dryRun, offline bool
	yes             bool
}

func (a *app) ckptRmCommand() *cobra.Command {
	r := &removal{}
	cmd := &cobra.Command{
		Use:   "rm CKPT...",
		Short: "Remove checkpoints: first from the ledger, then the manifest, then the data",
		Long: `Removes checkpoints. Each is first forgotten by its master, then its manifest is
removed, durably, so that it does not count any more, and then its data. What
stays, with the reason, whatever is asked: the newest that verifies (of each rank,
for private), a pinned one, one that another needs, and one of a newer version.

With --keep N the paths are folders of checkpoints, and all but the newest N are
removed. A cut that the ledger keeps may be named by its id: where its files are
gone already, because a framework has removed what it wrote, the ledger forgets it.`,
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
	f.BoolVar(&r.offline, "offline", false, "ask no master: it will find out at the next restore")
	f.BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	return cmd
}

type removedView struct {
	Path    string `json:"path"`
	Step    int64  `json:"step"`
	Removed bool   `json:"removed"` // or, dry, would be
	DryRun  bool   `json:"dry_run"`
	Reason  string `json:"reason"` // why it stays
}

// doomed is a checkpoint that somebody wants to remove, or that stays.
type doomed struct {
	c    *manifest.Checkpoint
	cuts []manifest.CutID // that the ledger has to forget
	stay string
	gone bool  // there are no files
	step int64 // of what is gone
}

func (a *app) remove(ctx context.Context, paths []string, r *removal) (err error) {
	var b *book
	if !r.offline {
		if b, err = a.ledger(ctx); err != nil {
			return err
		}
	}
	paths, gone := b.byCut(paths, r)
	all, err := a.chosen(ctx, paths, r, b)
	if err != nil {
		return err
	}
	all = append(all, gone...)
	views, going, kept := []removedView{}, 0, 0
	for _, d := range all {
		v := removedView{Path: d.c.Path, Step: d.step, Removed: d.stay == "", DryRun: r.dryRun, Reason: d.stay}
		if d.c.Manifest != nil {
			v.Step = d.c.Manifest.Step
		}
		if views = append(views, v); v.Removed {
			going++
		} else {
			kept++
		}
	}
	if going > 0 && !r.dryRun {
		if err := a.removeAll(ctx, all, going, r); err != nil {
			return err
		}
	}
	if err := a.show(views, func(w io.Writer) { removedTable(w, views) }); err != nil {
		return err
	}
	if kept > 0 && r.keep == 0 {
		return fmt.Errorf("%d of %d checkpoints stay", kept, len(views))
	}
	return nil
}

func removedTable(w io.Writer, views []removedView) {
	for _, v := range views {
		switch {
		case !v.Removed:
			fmt.Fprintf(w, "%s stays: %s\n", v.Path, v.Reason)
		case v.DryRun:
			fmt.Fprintf(w, "%s would be removed\n", v.Path)
		default:
			fmt.Fprintf(w, "%s removed\n", v.Path)
		}
	}
	if len(views) == 0 {
		fmt.Fprintln(w, "nothing to remove")
	}
}

// chosen are the checkpoints that are asked for, each with why it stays. What
// stays is judged among all checkpoints of its folder. One whose cut the ledger
// has voided is nobody's newest: it can not be restored.
func (a *app) chosen(ctx context.Context, paths []string, r *removal, b *book) (all []doomed, err error) {
	wanted := map[string]bool{}
	var dirs []string
	for _, path := range paths {
		dir, err := a.want(path, r, b, wanted)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	done := map[string]bool{}
	for _, dir := range dirs {
		if done[dir] {
			continue
		}
		done[dir] = true
		here, err := find(dir)
		if err != nil {
			return nil, err
		}
		wants := func(i int) bool { return wanted[here[i].Path] }
		stay := manifest.Stay(here, wants, func(c *manifest.Checkpoint) bool {
			return b.of(c.Manifest) != "voided" && a.verifies(ctx, c) == nil
		})
		for i := range here {
			if _, already := stay[i]; !already && b.newest(&here[i]) {
				stay[i] = "it is the newest that is bound"
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for i := range here {
			if wants(i) && !done[here[i].Path] {
				done[here[i].Path] = true
				all = append(all, doomed{c: &here[i], cuts: b.behind(&here[i]), stay: stay[i]})
			}
		}
	}
	return all, nil
}

// want notes which checkpoints a path asks for, and says which folder they are of.
func (a *app) want(path string, r *removal, b *book, wanted map[string]bool) (dir string, err error) {
	if r.keep == 0 {
		c, err := exactly(path)
		if err != nil {
			return "", err
		}
		wanted[c.Path] = true
		return folderOf(c), nil
	}
	if dir, err = filepath.Abs(path); err != nil {
		return "", err
	}
	all, err := find(dir)
	if err != nil {
		return "", err
	}
	newer := map[string]int{}
	for i := range all {
		c := &all[i]
		if c.Err != nil {
			continue // half and damaged ones are removed by name: a save may be going on
		}
		if b.of(c.Manifest) == "voided" {
			wanted[c.Path] = true
			continue
		}
		owner := c.Manifest.Job + "/" + view.RankText(c.Manifest.Rank)
		if newer[owner]++; newer[owner] > r.keep {
			wanted[c.Path] = true
		}
	}
	return dir, nil
}

// folderOf is the folder of checkpoints that a checkpoint lies in.
func folderOf(c *manifest.Checkpoint) string {
	if filepath.Base(c.Path) == manifest.FileName {
		return filepath.Dir(c.Folder())
	}
	return c.Folder()
}

func (a *app) removeAll(ctx context.Context, all []doomed, going int, r *removal) error {
	unbind, closing, err := a.unbinder(ctx, all, r)
	if err != nil {
		return err
	}
	defer closing()
	if err := a.confirm(ctx, fmt.Sprintf("remove %d checkpoints", going), r.yes); err != nil {
		return err
	}
	for _, d := range all {
		if d.stay != "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, cut := range d.cuts {
			if err := unbind(cut); err != nil {
				return fmt.Errorf("%s was not removed: %w", d.c.Path, err)
			}
		}
		if d.gone {
			continue
		}
		if err := d.c.Delete(manifest.OS{}); err != nil {
			return fmt.Errorf("%s: %w", d.c.Path, err)
		}
	}
	return nil
}

// unbinder makes the ledger forget a cut before its files go. Without a master
// that is refused, unless the user says so: a ledger that names a checkpoint which
// is gone holds data at the source for nothing, until somebody restores.
func (a *app) unbinder(ctx context.Context, all []doomed, r *removal) (unbind func(manifest.CutID) error, closing func(), err error) {
	if r.offline {
		return func(manifest.CutID) error { return nil }, func() {}, nil
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
	for _, d := range all {
		if m := d.c.Manifest; m != nil && d.stay == "" && m.Job != reply.Job {
			c.close()
			return nil, nil, advice.Usage.Errorf("name its own master with --master, or say --offline", "%s is of job %s, the master at %s runs %s", d.c.Path, m.Job, c.target, reply.Job)
		}
	}
	return func(cut manifest.CutID) error {
		ask, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		_, err := c.cuts().Drop(ask, &headracev1.DropCutRequest{Cut: uint64(cut), Reason: "its checkpoint is removed by headrace ckpt rm"})
		return advice.FromMaster(err, c.target)
	}, c.close, nil
}
