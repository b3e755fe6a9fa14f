package ckpt

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Removed is one checkpoint that was named for removal.
type Removed struct {
	Path    string `json:"path"`
	Step    int64  `json:"step"`
	Removed bool   `json:"removed"` // in a dry run: it would be
	DryRun  bool   `json:"dry_run"`
	Reason  string `json:"reason"` // why it stays
}

// Views says which checkpoints go and which stay.
func (all Chosen) Views(dryRun bool) []Removed {
	views := []Removed{}
	for _, d := range all {
		v := Removed{Path: d.c.Path, Step: d.step, Removed: d.stay == "", DryRun: dryRun, Reason: d.stay}
		if d.c.Manifest != nil {
			v.Step = d.c.Manifest.Step
		}
		views = append(views, v)
	}
	return views
}

// Going is how many do not stay.
func (all Chosen) Going() (n int) {
	for _, d := range all {
		if d.stay == "" {
			n++
		}
	}
	return n
}

// OwnedBy refuses checkpoints of another job than the one of the master at target: that
// master cannot forget them.
func (all Chosen) OwnedBy(job, target string) error {
	for _, d := range all {
		if m := d.c.Manifest; m != nil && d.stay == "" && m.Job != job {
			return advice.Usage.Errorf("name its own master with --master, or say --offline", "%s is of job %s, the master at %s runs %s", d.c.Path, m.Job, target, job)
		}
	}
	return nil
}

// Remove removes what does not stay. It marks a checkpoint, so that nobody pins it any more.
// Then forget makes the ledger forget its cut, the manifest goes, durably, and then the data.
// A checkpoint whose cut was not forgotten, or that was pinned meanwhile, keeps its files.
func (all Chosen) Remove(ctx context.Context, on On, forget func(cut.ID) error) error {
	for _, d := range all {
		if d.stay != "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.begin(on(d.c.Path), forget); err != nil {
			return fmt.Errorf("%s was not removed: %w", d.c.Path, err)
		}
		if d.gone {
			continue
		}
		if err := d.c.Delete(on(d.c.Path)); err != nil {
			return fmt.Errorf("%s: %w", d.c.Path, err)
		}
	}
	return nil
}

// begin marks a checkpoint as being removed, and makes the ledger forget it. The mark stays
// if it is not known whether the ledger has forgotten it.
func (d *doomed) begin(on manifest.FS, forget func(cut.ID) error) error {
	if !d.gone {
		if err := d.c.BeginRemoval(on); err != nil {
			return err
		}
	}
	for _, cut := range d.cuts {
		err := forget(cut)
		if err != nil && !d.gone && refused(err) {
			err = errors.Join(err, d.c.CancelRemoval(on))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refused: the master has answered.
func refused(err error) bool {
	e, ok := errors.AsType[*advice.Error](err)
	return ok && e.Kind != advice.Unreachable && !errors.Is(err, context.Canceled)
}

// WriteRemoved prints what was removed, would be removed, or stays.
func WriteRemoved(w io.Writer, views []Removed) {
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
