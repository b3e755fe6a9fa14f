package pushing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/connectors/go/push"
	"github.com/headrace/headrace/internal/advice"
)

// Said is what was pushed.
type Said struct {
	Dataset      string `json:"dataset"`
	Transactions int    `json:"transactions"`
	Already      int    `json:"already"` // were visible before
	Records      int64  `json:"records"` // of all of them
	Ended        bool   `json:"ended"`
}

// Target is the dataset that lines are pushed into.
type Target interface {
	// Landed says whether a transaction is visible already.
	Landed(ctx context.Context, id string) (push.Done, bool, error)
	// Begin begins a transaction; "": with an id of its own.
	Begin(id string) Transaction
}

// Transaction is a push.Transaction.
type Transaction interface {
	Push(ctx context.Context, r push.Record) error
	Commit(ctx context.Context) (push.Done, error)
}

// Into is the Target of a Pusher.
func Into(p *push.Pusher) Target { return into{p} }

type into struct{ *push.Pusher }

func (i into) Begin(id string) Transaction { return i.Pusher.Begin(id) }

// Upload cuts lines into transactions. The zero value makes one transaction of all of them.
type Upload struct {
	ID    string        // with Rows too, part 3 is transaction ID/3
	Rows  int64         // records per transaction; 0: all in one
	Every time.Duration // commit what came in this time; 0: only at the end, or after Rows
	Said  Said

	to     Target
	t      Transaction
	landed *push.Done // of the part that is visible already: its lines are not sent
	lines  int64      // of this part
}

// Check refuses options that do not go together.
func (u *Upload) Check() error {
	if u.ID != "" && u.Every > 0 {
		return advice.Usage.Errorf("use --rows", "--every does not go with --transaction: a second run would cut its input at other places")
	}
	if u.Rows < 0 || u.Every < 0 {
		return advice.Usage.Errorf("", "--rows and --every are not negative")
	}
	return nil
}

// Run pushes all lines of in that are not empty. After an error, what was committed before
// stays.
func (u *Upload) Run(ctx context.Context, to Target, in io.Reader) error {
	u.to = to
	lines, failed := readLines(ctx, in)
	var tick <-chan time.Time
	if u.Every > 0 {
		ticker := time.NewTicker(u.Every)
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
				return u.commit(ctx, u.Said.Transactions == 0)
			}
			if err := u.push(ctx, line); err != nil {
				return err
			}
			if u.Rows > 0 && u.lines >= u.Rows {
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
func (u *Upload) push(ctx context.Context, line []byte) error {
	if u.t == nil {
		u.t, u.lines = u.to.Begin(u.name()), 0
		if u.ID != "" {
			switch done, landed, err := u.to.Landed(ctx, u.name()); {
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

func (u *Upload) name() string {
	if u.ID != "" && u.Rows > 0 {
		return fmt.Sprintf("%s/%d", u.ID, u.Said.Transactions)
	}
	return u.ID
}

// commit makes the pushed lines visible. With empty, it also commits a transaction without
// lines, if it has an id.
func (u *Upload) commit(ctx context.Context, empty bool) error {
	if u.t == nil {
		if !empty || u.ID == "" {
			return nil
		}
		u.t = u.to.Begin(u.name())
	}
	var done push.Done
	var err error
	if u.landed != nil {
		done = *u.landed
	} else if done, err = u.t.Commit(ctx); err != nil {
		return err
	}
	if done.Already && done.Records != u.lines {
		return advice.Failed.Errorf("push the lines that are new as a transaction with another id",
			"transaction %q is visible already with %d records, and the input has %d lines for it now: the input was changed, and none of these lines was added", u.name(), done.Records, u.lines)
	}
	u.Said.Transactions++
	u.Said.Records += done.Records
	if done.Already {
		u.Said.Already++
	}
	u.t, u.landed = nil, nil
	return nil
}
