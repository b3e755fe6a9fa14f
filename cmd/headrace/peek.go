package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/sample"
	"github.com/headrace/headrace/sources"
)

func (a *app) peekCommand() *cobra.Command {
	n := 5
	var columns []string
	cmd := &cobra.Command{
		Use:   "peek NAME [-n ROWS] [--columns A,B]",
		Short: "The first rows of a dataset, decoded; no lease is taken",
		Long: `Reads and decodes the first rows in this process, from this machine's files:
what a trainer would get. Nothing is leased and nothing changes. Of pushed records these
are the first ones that are not deleted; the master gives them.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeDatasets,
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, args []string) error {
			if n < 1 || n > 10_000 {
				return advice.Usage.Errorf("", "-n %d: must be from 1 to 10000", n)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			d, err := c.Describe(ctx, &headracev1.DescribeRequest{Name: args[0]})
			cancel()
			if err != nil {
				return err
			}
			spec, err := dataset.FromJSON([]byte(d.SpecJson))
			if err != nil {
				return err
			}
			// For a dataset with a backfill these are rows of the history; check shows both inputs.
			rows, err := sample.First(cmd.Context(), spec.Inputs()[0], a.openQuick, n, columns)
			if err != nil {
				return err
			}
			return a.show(rows.Objects(), func(w io.Writer) { rows.Table().Write(w) })
		}),
	}
	cmd.Flags().IntVarP(&n, "rows", "n", n, "rows to show")
	cmd.Flags().StringSliceVar(&columns, "columns", nil, "only these columns")
	return cmd
}

// openQuick opens a source to look at it. It reads with the user's own rights, so the
// spec's root is allowed.
func (a *app) openQuick(spec *dataset.Spec) (sources.Source, error) {
	roots := spec.Folders()
	if len(roots) == 0 {
		roots = []string{"/"}
	}
	o := dataset.Opening{AllowedRoots: roots, Logger: slog.New(slog.DiscardHandler)}
	if _, ok := spec.Landing(); ok {
		return a.lookAtPushed(spec, o)
	}
	return a.openToRead(spec.ForALook(), o)
}

// openOwn is openQuick for a spec of -f. The same user brings the spec and the secrets that
// it names, so the spec's brokers count as listed in allow_broker.
func (a *app) openOwn(spec *dataset.Spec) (sources.Source, error) {
	if a.cfg.From("allow_broker") == "" {
		if err := a.connect(spec.ReachOf().Addresses); err != nil {
			return nil, err
		}
	}
	return a.openQuick(spec)
}
