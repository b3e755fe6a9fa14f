package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/connectors/go/push"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/terminal"
)

// pushed is what the verb prints.
type pushed struct {
	Dataset      string `json:"dataset"`
	Transactions int    `json:"transactions"`
	Already      int    `json:"already"` // were visible before
	Records      int64  `json:"records"` // of all of them
	Ended        bool   `json:"ended"`
}

func (a *app) pushCommand() *cobra.Command {
	var (
		id    string
		rows  int64
		every time.Duration
		end   bool
		own   bool
	)
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
			if id != "" && every > 0 {
				return advice.Usage.Errorf("use --rows", "--every does not go with --transaction: a second run would cut its input at other places")
			}
			if rows < 0 || every < 0 {
				return advice.Usage.Errorf("", "--rows and --every are not negative")
			}
			in, closeAll, err := a.inputs(args[1:])
			if err != nil {
				return err
			}
			defer closeAll()
			told := &waits{w: cmd.ErrOrStderr(), master: c.target.String()}
			options := []push.Option{push.OnWait(told.wait)}
			if own {
				options = append(options, push.Upload(a.putter))
			}
			p, err := push.Open(cmd.Context(), c.conn, args[0], options...)
			if err != nil {
				return err
			}
			u := &upload{p: p, id: id, rows: rows, every: every, said: pushed{Dataset: args[0]}}
			if err := u.run(cmd.Context(), in); err != nil {
				return err
			}
			if end {
				if err := p.End(cmd.Context()); err != nil {
					return err
				}
				u.said.Ended = true
			}
			return a.show(u.said, func(w io.Writer) {
				fmt.Fprintf(w, "dataset %s: %s records in %d transactions", args[0], terminal.Grouped(u.said.Records), u.said.Transactions)
				if u.said.Already > 0 {
					fmt.Fprintf(w, ", %d were visible already", u.said.Already)
				}
				if end {
					fmt.Fprint(w, "; it has ended")
				}
				fmt.Fprintln(w)
			})
		}),
	}
	cmd.Flags().StringVar(&id, "transaction", "", "its id: a transaction that is visible is not added again")
	cmd.Flags().Int64Var(&rows, "rows", 0, "records per transaction; 0: all in one")
	cmd.Flags().DurationVar(&every, "every", 0, "commit what came in this time; 0: only at the end, or after --rows")
	cmd.Flags().BoolVar(&own, "upload", false, "put the chunks into the bucket of landing_storage from here, not through the master")
	cmd.Flags().BoolVar(&end, "end", false, "say that no record follows, from anybody")
	return cmd
}

// waits says on stderr why nothing goes on: after two seconds, and then every ten. That there
// is no master it says at once.
type waits struct {
	w      io.Writer
	master string

	mu    sync.Mutex
	away  bool      // it was told that there is no master
	since time.Time // the last wait of this row of waits began or was told
	last  time.Time
	told  bool
}

const (
	waitsQuiet = 2 * time.Second
	waitsAgain = 10 * time.Second
)

func (k *waits) wait(reason error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if now.Sub(k.last) > waitsAgain { // something has gone on in between
		k.since, k.told = now, false
	}
	k.last = now
	if st := status.Convert(reason); st.Code() == codes.Unavailable && strings.Contains(st.Message(), "connect") && !k.away {
		k.since, k.told, k.away = now, true, true
		fmt.Fprintf(k.w, "headrace: no master answers at %s; waiting for it: `headrace up` starts one\n", k.master)
		return
	}
	quiet := waitsQuiet
	if k.told {
		quiet = waitsAgain
	}
	if now.Sub(k.since) >= quiet {
		k.since, k.told = now, true
		fmt.Fprintf(k.w, "headrace: the master does not take the records yet; trying again: %s\n", status.Convert(reason).Message())
	}
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
		open = append(open, f)
		all = append(all, f, bytes.NewReader([]byte("\n"))) // a last line without its end is one
	}
	return io.MultiReader(all...), closeAll, nil
}

// upload cuts lines into transactions.
type upload struct {
	p     *push.Pusher
	id    string
	rows  int64
	every time.Duration
	said  pushed

	t      *push.Transaction
	landed *push.Done // of the part that is visible already: its lines are not sent
	lines  int64      // of this part
}

func (u *upload) run(ctx context.Context, in io.Reader) error {
	lines, failed := readLines(ctx, in)
	var tick <-chan time.Time
	if u.every > 0 {
		ticker := time.NewTicker(u.every)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case line, more := <-lines:
			if !more {
				if err := errors.Join(<-failed, ctx.Err()); err != nil {
					return fmt.Errorf("the input cannot be read; what was committed before stays: %w", err)
				}
				return u.commit(ctx, u.said.Transactions == 0)
			}
			if err := u.push(ctx, line); err != nil {
				return err
			}
			if u.rows > 0 && u.lines >= u.rows {
				if err := u.commit(ctx, false); err != nil {
					return err
				}
			}
		case <-tick:
			if err := u.commit(ctx, false); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// push adds a line to its part. At the first line of a part with an id it asks whether the
// part is visible already.
func (u *upload) push(ctx context.Context, line []byte) error {
	if u.t == nil {
		u.t, u.lines = u.p.Begin(u.name()), 0
		if u.id != "" {
			switch done, landed, err := u.p.Landed(ctx, u.name()); {
			case status.Code(err) == codes.Unimplemented: // a master of an older version: the commit tells
			case err != nil:
				return err
			case landed:
				u.landed = &done
			}
		}
	}
	u.lines++
	if u.landed != nil {
		return nil
	}
	return u.t.Push(ctx, push.Record{Value: line})
}

func (u *upload) name() string {
	if u.id != "" && u.rows > 0 {
		return fmt.Sprintf("%s/%d", u.id, u.said.Transactions)
	}
	return u.id
}

// commit makes visible what was pushed. empty: also if that is nothing, where the
// transaction has an id.
func (u *upload) commit(ctx context.Context, empty bool) error {
	if u.t == nil {
		if !empty || u.id == "" {
			return nil
		}
		u.t = u.p.Begin(u.name())
	}
	var done push.Done
	var err error
	if u.landed != nil {
		done = *u.landed
	} else if done, err = u.t.Commit(ctx); err != nil {
		return err
	}
	u.said.Transactions++
	u.said.Records += done.Records
	if done.Already {
		u.said.Already++
	}
	u.t, u.landed = nil, nil
	return nil
}

const longestLine = 64 << 20

// readLines sends each line that is not empty, in memory of its own. It ends with the
// input or ctx; a read that hangs ends with the process.
func readLines(ctx context.Context, in io.Reader) (<-chan []byte, <-chan error) {
	lines, failed := make(chan []byte, 1024), make(chan error, 1)
	go func() {
		defer close(failed)
		defer close(lines)
		s := bufio.NewScanner(in)
		s.Buffer(make([]byte, 64<<10), longestLine)
		for s.Scan() {
			if line := bytes.TrimSuffix(s.Bytes(), []byte("\r")); len(line) > 0 {
				select {
				case lines <- bytes.Clone(line):
				case <-ctx.Done():
					return
				}
			}
		}
		err := s.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line is longer than %d bytes", longestLine)
		}
		failed <- err
	}()
	return lines, failed
}
