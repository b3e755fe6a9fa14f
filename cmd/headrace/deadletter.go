package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/connectors/go/push"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/deadletter"
	"github.com/headrace/headrace/internal/pushing"
)

func (a *app) deadletterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deadletter",
		Short: "Bad records that were left out: list, show, replay",
		Long: `With decode.on_error: skip, a record that cannot be decoded is left out, durably, and
its bytes become a dead letter (docs/BAD-RECORDS.md). These verbs read dead letters
that are files. Those of a topic are read with the broker's own tools.`,
	}
	cmd.AddCommand(a.deadletterList(), a.deadletterShow(), a.deadletterReplay())
	return cmd
}

// letters reads the dead letters of a dataset, each id once, in the order in which they
// were written.
func (a *app) letters(ctx context.Context, c *client, name string) ([]deadletter.Letter, error) {
	r := deadletter.Reading{Dataset: name}
	for page := ""; ; {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		reply, err := c.ReadDeadLetters(ctx, &headracev1.ReadDeadLettersRequest{Name: name, PageToken: page})
		cancel()
		if err != nil {
			return nil, err
		}
		if reply.Topic != "" {
			return nil, advice.Usage.Errorf("read the topic with the broker's own tools",
				"the dead letters of dataset %s are in topic %s", name, reply.Topic)
		}
		if err := r.Add(reply.Letters); err != nil {
			return nil, err
		}
		if page = reply.NextPageToken; page == "" {
			return r.All, nil
		}
	}
}

func (a *app) deadletterList() *cobra.Command {
	return &cobra.Command{
		Use:               "list DATASET",
		Short:             "Every dead letter: where the record is, its column, why",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeDatasets,
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, args []string) error {
			all, err := a.letters(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return a.show(all, func(w io.Writer) { deadletter.WriteList(w, all) })
		}),
	}
}

func (a *app) deadletterShow() *cobra.Command {
	raw := false
	cmd := &cobra.Command{
		Use:   "show DATASET ID",
		Short: "One dead letter with its bytes",
		Example: `  headrace deadletter show clicks 'clicks/files:.../0/0/81234'
  headrace deadletter show clicks ID --raw > record`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeDatasets,
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, args []string) error {
			all, err := a.letters(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			some, err := deadletter.Choose(all, args[0], args[1:])
			if err != nil {
				return err
			}
			l := &some[0]
			if raw {
				_, err := a.out.Write(l.Value)
				return err
			}
			return a.show(l, l.Write)
		}),
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "only the record's bytes, as they are; for a row of Parquet: the row as JSON")
	return cmd
}

func (a *app) deadletterReplay() *cobra.Command {
	into, all := "", false
	cmd := &cobra.Command{
		Use:   "replay DATASET [ID...] --into DATASET2",
		Short: "Push dead letters into a dataset of the source landing",
		Long: `Pushes the bytes of dead letters, as they are, into another dataset. Its source must be
landing, and its spec should have the columns that these records need. Each record is
one transaction that is named by its id, so a second run of the same command adds
nothing. The records stay excluded from their own dataset. Nothing is added to the
bytes and nothing is taken away. A row of a Parquet file has no bytes of its own: it is
pushed as one JSON object, so the other dataset needs format: json. If a dead letter
keeps only the beginning of its record, or nothing, replay refuses and pushes no record.`,
		Example: `  headrace deadletter replay clicks --all --into clicks-mended`,
		Args:    cobra.MinimumNArgs(1),
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, args []string) error {
			if into == "" || all == (len(args) > 1) {
				return advice.Usage.Errorf("headrace deadletter replay DATASET --all --into DATASET2", "name the dataset to push into with --into, and either ids or --all")
			}
			some, err := a.letters(cmd.Context(), c, args[0])
			if err == nil && !all {
				some, err = deadletter.Choose(some, args[0], args[1:])
			}
			if err != nil {
				return err
			}
			if err := deadletter.Replayable(some); err != nil {
				return err
			}
			told := &pushing.Waits{To: cmd.ErrOrStderr(), Master: c.target.String()}
			p, err := push.Open(cmd.Context(), c.conn, into, push.OnWait(told.Wait))
			if err != nil {
				return err
			}
			said := deadletter.Replayed{Dataset: args[0], Into: into}
			err = said.Replay(some, func(transaction string, l *deadletter.Letter) (bool, error) {
				t := p.Begin(transaction)
				if err := t.Push(cmd.Context(), push.Record{Key: l.Key, Value: l.Value}); err != nil {
					return false, err
				}
				done, err := t.Commit(cmd.Context())
				return done.Already, err
			})
			if err != nil {
				return err
			}
			return a.show(said, said.Write)
		}),
	}
	cmd.Flags().StringVar(&into, "into", "", "a dataset with the source landing")
	cmd.Flags().BoolVar(&all, "all", false, "every dead letter")
	return cmd
}
