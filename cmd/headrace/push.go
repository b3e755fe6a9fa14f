package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/connectors/go/push"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/pushing"
	"github.com/headrace/headrace/internal/terminal"
)

func (a *app) pushCommand() *cobra.Command {
	var u pushing.Upload
	end, own := false, false
	cmd := &cobra.Command{
		Use:   "push DATASET [FILE...]",
		Short: "Push lines into a dataset with the source landing",
		Long: `Reads lines from files or from standard input; each line that is not empty is one
record. They become visible together, in one transaction, at the end of the input:
all of them or none. --rows and --every make a transaction of each part instead.

With --transaction, the same command can be run again after any failure: what is
visible already is not added again. With --rows too, part 3 is transaction ID/3.`,
		Example: `  headrace push clicks < rows.jsonl
  headrace push clicks rows.jsonl --transaction rows-2026-01-31
  tail -F app.log | headrace push clicks --every 1s
  headrace push clicks --end < /dev/null        no record follows`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeDatasets,
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, args []string) error {
			if err := u.Check(); err != nil {
				return err
			}
			in, closeAll, err := a.inputs(args[1:])
			if err != nil {
				return err
			}
			defer closeAll()
			told := &pushing.Waits{To: cmd.ErrOrStderr(), Master: c.target.String()}
			options := []push.Option{push.OnWait(told.Wait)}
			if own {
				options = append(options, push.Upload(a.putter))
			}
			p, err := push.Open(cmd.Context(), c.conn, args[0], options...)
			if err != nil {
				return err
			}
			u.Said.Dataset = args[0]
			if err := u.Run(cmd.Context(), pushing.Into(p), in); err != nil {
				return err
			}
			if end {
				if err := p.End(cmd.Context()); err != nil {
					return err
				}
				u.Said.Ended = true
			}
			return a.show(u.Said, func(w io.Writer) {
				fmt.Fprintf(w, "dataset %s: %s records in %d transactions", args[0], terminal.Grouped(u.Said.Records), u.Said.Transactions)
				if u.Said.Already > 0 {
					fmt.Fprintf(w, ", %d were visible already", u.Said.Already)
				}
				if end {
					fmt.Fprint(w, "; it has ended")
				}
				fmt.Fprintln(w)
			})
		}),
	}
	cmd.Flags().StringVar(&u.ID, "transaction", "", "its id: a transaction that is visible is not added again")
	cmd.Flags().Int64Var(&u.Rows, "rows", 0, "records per transaction; 0: all in one")
	cmd.Flags().DurationVar(&u.Every, "every", 0, "commit what came in this time; 0: only at the end, or after --rows")
	cmd.Flags().BoolVar(&own, "upload", false, "put the chunks into the bucket of landing_storage from here, not through the master")
	cmd.Flags().BoolVar(&end, "end", false, "say that no record follows, from anybody")
	return cmd
}

// inputs opens the files one after the other, or standard input.
func (a *app) inputs(files []string) (io.Reader, func(), error) {
	if len(files) == 0 {
		return a.in, func() {}, nil
	}
	var all []io.Reader
	var open []*os.File
	closeAll := func() {
		for _, f := range open {
			_ = f.Close()
		}
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			closeAll()
			return nil, nil, advice.Usage.Wrap("", err)
		}
		open, all = append(open, f), append(all, f)
	}
	return pushing.EachWithALineEnd(all), closeAll, nil
}
