package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/sample"
	"github.com/headrace/headrace/internal/terminal"
)

func (a *app) checkCommand() *cobra.Command {
	var files []string
	n := int64(100_000)
	cmd := &cobra.Command{
		Use:   "check -f FILE [-n ROWS]",
		Short: "Try a spec on its data and count errors by field",
		Long: `Reads and decodes records of every dataset in the file, in this process. For each
field it says how many values could not be decoded, with the first example. It exits with 1
if there are any.
It needs no master, except for pushed records: the master gives those of the dataset with
the spec's name that are not deleted.
For a dataset with a backfill it also shows where the two inputs meet: the last record of
the history and the first ones of the topic.`,
		Example: `  headrace dataset check -f clicks.yaml -n 1000000`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.load(cmd, nil); err != nil {
				return err
			}
			if n < 0 {
				return advice.Usage.Errorf("", "-n %d: must be 0 (all) or more", n)
			}
			docs, err := a.readSpecs(cmd.CommandPath(), files)
			if err != nil {
				return err
			}
			results := []sample.Checked{}
			for _, d := range docs {
				inputs := d.Spec.Inputs()
				for _, in := range inputs {
					c, err := sample.Check(cmd.Context(), in, a.openOwn, n)
					if err != nil {
						return err
					}
					if len(inputs) > 1 {
						c.Input = in.Kind().Name
					}
					results = append(results, c)
				}
				if results[len(results)-1].Seam, err = sample.SeamOf(cmd.Context(), d.Spec, a.openOwn); err != nil {
					return err
				}
			}
			return a.showChecked(results)
		},
	}
	specFlag(cmd, &files)
	cmd.Flags().Int64VarP(&n, "rows", "n", n, "records to read of each dataset; 0: all")
	return cmd
}

func (a *app) showChecked(results []sample.Checked) error {
	bad := int64(0)
	for _, r := range results {
		bad += r.Bad
	}
	err := a.show(results, func(w io.Writer) {
		for _, r := range results {
			r.Write(w)
		}
	})
	if err == nil && bad > 0 {
		return advice.Failed.Errorf("a default on a column replaces missing values; on_error: default replaces bad ones too",
			"records that cannot be decoded: %s", terminal.Grouped(bad))
	}
	return err
}
