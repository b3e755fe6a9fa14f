package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/connectors/go/push"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/deadletter"
	"github.com/headrace/headrace/internal/terminal"
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
	all := []deadletter.Letter{}
	seen := map[string]bool{}
	for page := ""; ; {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		reply, err := c.ReadDeadLetters(ctx, &headracev1.ReadDeadLettersRequest{Name: name, PageToken: page})
		cancel()
		if err != nil {
			return nil, err
		}
		if reply.Topic != "" {
			return nil, advice.Usage.Errorf("read the topic with the broker's own tools, as in kafka-console-consumer --topic "+reply.Topic,
				"the dead letters of dataset %s are in topic %s", name, reply.Topic)
		}
		for _, line := range reply.Letters {
			l, err := deadletter.Decode(line)
			if err != nil {
				return nil, fmt.Errorf("a dead letter of dataset %s cannot be read: %w", name, err)
			}
			if !seen[l.ID] {
				seen[l.ID] = true
				all = append(all, l)
			}
		}
		if page = reply.NextPageToken; page == "" {
			return all, nil
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
			return a.show(all, func(w io.Writer) {
				t := terminal.NewTable("ID", "IN", "COLUMN", "BYTES>", "SINCE", "REASON")
				for i := range all {
					l := &all[i]
					t.Row(l.ID, l.Name, columnText(l.Column), sizeText(l), l.Time, terminal.Clip(l.Reason, 80))
				}
				t.Write(w)
			})
		}),
	}
}

func columnText(column string) string {
	if column == "" {
		return "(record)"
	}
	return column
}

func sizeText(l *deadletter.Letter) string {
	if !l.Bytes() {
		return "-"
	}
	return fmt.Sprint(l.Size)
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
			some, err := choose(all, args[0], args[1:])
			if err != nil {
				return err
			}
			l := &some[0]
			if raw {
				_, err := a.out.Write(l.Value)
				return err
			}
			return a.show(l, func(w io.Writer) {
				line := func(name, value string) { fmt.Fprintf(w, "%-9s %s\n", name, value) }
				line("id", l.ID)
				line("in", fmt.Sprintf("%s, pass %d, offset %d to %d", l.Name, l.Pass+1, l.Offset, l.End))
				line("column", columnText(l.Column))
				line("kind", l.Kind)
				line("reason", l.Reason)
				line("since", l.Time)
				if len(l.Key) > 0 {
					line("key", textOf(l.Key))
				}
				size := fmt.Sprintf("%d bytes", l.Size)
				if !l.Bytes() {
					line("value", "none: it is a row of a file of columns, which has no bytes of its own")
					return
				}
				if !l.Whole() {
					size += fmt.Sprintf(", the first %d are kept", len(l.Value))
				}
				line("value", size)
				fmt.Fprintln(w, textOf(l.Value))
			})
		}),
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "only the record's bytes, as they are")
	return cmd
}

// textOf shows bytes: as text where they are text, else quoted.
func textOf(b []byte) string {
	if utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f }) {
		return strings.TrimRight(string(b), "\r\n")
	}
	return fmt.Sprintf("%q", b)
}

// choose finds letters by id.
func choose(all []deadletter.Letter, dataset string, ids []string) (some []deadletter.Letter, err error) {
	at := map[string]int{}
	for i := range all {
		at[all[i].ID] = i
	}
	for _, id := range ids {
		i, ok := at[id]
		if !ok {
			return nil, advice.Usage.Errorf("`headrace deadletter list "+dataset+"` shows the ids", "dataset %s has no dead letter %s", dataset, id)
		}
		some = append(some, all[i])
	}
	return some, nil
}

// replayed is what the verb prints.
type replayed struct {
	Dataset string `json:"dataset"`
	Into    string `json:"into"`
	Records int    `json:"records"` // pushed now
	Already int    `json:"already"` // pushed by an earlier run
}

func (a *app) deadletterReplay() *cobra.Command {
	into, all := "", false
	cmd := &cobra.Command{
		Use:   "replay DATASET [ID...] --into DATASET2",
		Short: "Push dead letters into a dataset of the source landing",
		Long: `Pushes the bytes of dead letters, as they are, into another dataset whose source is
landing, for example one whose spec has the columns that these records need. Each
record is one transaction that is named by its id, so that a second run of the same
command adds nothing. The records stay excluded from their own dataset. Nothing is added
to the bytes and nothing is taken away. Two kinds of records are refused, and then none
is pushed: those of which only the beginning is kept, and rows of Parquet files, which
have no bytes of their own.`,
		Example: `  headrace deadletter replay clicks --all --into clicks-mended`,
		Args:    cobra.MinimumNArgs(1),
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, args []string) error {
			if into == "" || all == (len(args) > 1) {
				return advice.Usage.Errorf("headrace deadletter replay DATASET --all --into DATASET2", "name the dataset to push into with --into, and either ids or --all")
			}
			some, err := a.letters(cmd.Context(), c, args[0])
			if err == nil && !all {
				some, err = choose(some, args[0], args[1:])
			}
			if err != nil {
				return err
			}
			for i := range some {
				if !some[i].Bytes() {
					return advice.Usage.Errorf("read the row from the file, or replay others by their ids",
						"%s, row %d of %s, has no bytes that could be pushed: it is a row of a file of columns", some[i].ID, some[i].Offset, some[i].Name)
				}
				if !some[i].Whole() {
					return advice.Usage.Errorf("take it from the source", "%s has %d bytes, and only the first %d are kept", some[i].ID, some[i].Size, len(some[i].Value))
				}
			}
			p, err := push.Open(cmd.Context(), c.conn, into, push.OnWait((&waits{w: cmd.ErrOrStderr(), master: c.target.String()}).wait))
			if err != nil {
				return err
			}
			said := replayed{Dataset: args[0], Into: into}
			for i := range some {
				l := &some[i]
				sum := sha256.Sum256([]byte(l.ID)) // an id may be longer than a transaction's
				t := p.Begin("deadletter-" + hex.EncodeToString(sum[:16]))
				if err := t.Push(cmd.Context(), push.Record{Key: l.Key, Value: l.Value}); err != nil {
					return err
				}
				done, err := t.Commit(cmd.Context())
				if err != nil {
					return err
				}
				if done.Already {
					said.Already++
				} else {
					said.Records++
				}
			}
			return a.show(said, func(w io.Writer) {
				fmt.Fprintf(w, "dataset %s: %d records pushed into %s", said.Dataset, said.Records, said.Into)
				if said.Already > 0 {
					fmt.Fprintf(w, ", %d were pushed before", said.Already)
				}
				fmt.Fprintln(w)
			})
		}),
	}
	cmd.Flags().StringVar(&into, "into", "", "a dataset with the source landing")
	cmd.Flags().BoolVar(&all, "all", false, "every dead letter")
	return cmd
}
