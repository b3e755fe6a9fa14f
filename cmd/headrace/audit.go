package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/ckpt"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

func (a *app) auditCommand() *cobra.Command {
	var with, record string
	var files []string
	ranges := false
	cmd := &cobra.Command{
		Use:   "audit CKPT",
		Short: "Which records are in a checkpoint's model",
		Long: `Says from a checkpoint's manifest alone, without a master, which records are in
its model: by dataset, partition and pass, in the source's own offsets, through a
shuffle too. Amounts are in the dataset's unit: bytes for files, offsets for
brokers (a compacted topic has fewer records than offsets). A range means the
records that begin in it. The records themselves are counted as trainers used them,
with the event times of the oldest and the newest. ("at least": a version that did not
count has used some of them. "?": it has used all of them.)

  --contains TOPIC/PARTITION/OFFSET, or PATH/OFFSET: is the record that begins
  there in the model, by which pass, or why not? Exits as grep does: 0 for yes,
  1 for no, 2 when it cannot be said. In a file the offset is that of the record's
  first byte. No file is read, so for a byte inside a record the answer may differ
  from the answer for the record. A broker's position may hold no record: it may be
  the mark of a transaction, or a record of an aborted one. If the checkpoint does
  not tell, Headrace asks the source, with the spec of -f or of a running master.
  --diff B: what one model has and the other has not.

For a folder of checkpoints it takes the newest.`,
		Example: `  headrace audit ckpt/ --ranges
  headrace audit ckpt/ --contains clicks/3/81234
  headrace audit ckpt/ --contains logs/day_3.tsv/1048576
  headrace audit ckpt/step-0000000200-9f3c00000000abcd --diff ckpt/step-0000000100-5e1d000000000042`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.load(cmd, nil); err != nil {
				return err
			}
			if with != "" && record != "" {
				return advice.Usage.Errorf("ask twice", "--diff and --contains exclude each other")
			}
			c, err := ckpt.One(a.checkpointsOn(cmd.Context()), args[0])
			if record != "" {
				if err == nil {
					err = a.contains(cmd.Context(), c, record, files)
				}
				return asGrep(err)
			}
			if err != nil {
				return err
			}
			if with != "" {
				other, err := ckpt.One(a.checkpointsOn(cmd.Context()), with)
				if err != nil {
					return err
				}
				v, err := ckpt.Diff(c, other)
				if err != nil {
					return err
				}
				return a.show(v, v.Write)
			}
			v := ckpt.AuditOf(c)
			return a.show(v, func(w io.Writer) { v.Write(w, ranges) })
		},
	}
	cmd.Flags().StringVar(&record, "contains", "", "a record: TOPIC/PARTITION/OFFSET, or PATH/OFFSET")
	specFlag(cmd, &files)
	cmd.Flags().StringVar(&with, "diff", "", "another checkpoint to compare with")
	cmd.Flags().BoolVar(&ranges, "ranges", false, "list the ranges (json and yaml always do)")
	return cmd
}

// asGrep keeps exit code 1 for "no".
func asGrep(err error) error {
	if err == nil {
		return nil
	}
	f := *classify(err)
	if f.err != nil {
		f.code = exitUsage
	}
	return &f
}

// contains shows whether a record is in the model. If it is not, the exit code says so
// and no error text follows.
func (a *app) contains(ctx context.Context, c *manifest.Checkpoint, record string, files []string) error {
	ask, done, err := a.sourceOf(ctx, files)
	if err != nil {
		return err
	}
	defer done()
	v, err := ckpt.Contains(ctx, c, record, ask)
	if err != nil {
		return err
	}
	if err := a.show(v, v.Write); err != nil {
		return err
	}
	switch {
	case v.Unsure:
		return &failure{code: exitUsage}
	case !v.In:
		return &failure{code: exitFailed}
	}
	return nil
}

// sourceOf opens datasets with the specs of -f, else with those of the master that was
// named or runs here. open is nil if there are neither.
func (a *app) sourceOf(ctx context.Context, files []string) (open ckpt.OpenSource, done func(), err error) {
	done = func() {}
	if len(files) > 0 {
		docs, err := a.readSpecs("headrace audit CKPT", files)
		return func(name, partition string) (sources.Source, error) {
			for _, d := range docs {
				if d.Spec.Name == name {
					return a.openOwn(d.Spec.InputOf(partition))
				}
			}
			return nil, fmt.Errorf("no file of -f has dataset %s", name)
		}, done, err
	}
	if a.cfg.From("master") == "" && !a.masterAlive() {
		return nil, done, nil
	}
	c, err := a.dial()
	if err != nil {
		return nil, done, err
	}
	return func(name, partition string) (sources.Source, error) {
		d, err := describe(ctx, c, name)
		if err != nil {
			return nil, err
		}
		if d == nil {
			return nil, fmt.Errorf("the master knows no dataset %s", name)
		}
		spec, err := dataset.FromJSON([]byte(d.SpecJson))
		if err != nil {
			return nil, err
		}
		return a.openQuick(spec.InputOf(partition))
	}, c.close, nil
}
