package chaos

import (
	"context"
	"fmt"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

// patiences is how many patiences the end may take in all, if each brings some progress. The speed
// of a machine, or the time a broker needs to start on it, says nothing about the job.
const patiences = 4

const progressEvery = time.Second // how often progress is asked for

// ends waits for the end of data. It gives false if something is wrong already. If nothing moves any
// more, or if the job goes on for ever, it also marks the run as stuck.
func (c *crew) ends(ctx context.Context) bool {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	moved, asked, last := began, began, ""
	left := allowance{most: patiences * c.patience(), since: began}
	for {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		written, more := c.writtenYet()
		if ctx.Err() != nil || left.over(time.Now(), written, more) {
			c.wrongf("no end of data %.0f s after the last trouble: %s", time.Since(began).Seconds(), c.who())
			c.stuck = true
			return false
		}
		if c.o.Live {
			c.tellEnough(ctx)
		}
		switch {
		case c.over():
			return true
		case c.bad():
			return false
		}
		if time.Since(asked) < progressEvery {
			continue
		}
		asked = time.Now()
		if now := c.books.progress(ctx, c.inputs); now != "" && now != last || c.broker.away() {
			moved, last = time.Now(), now
		}
		if time.Since(moved) > c.o.Patience {
			c.wrongf("no end of data %.0f s after the last trouble, and nothing has moved for %v: %s", time.Since(began).Seconds(), c.o.Patience, c.who())
			c.stuck = true
			return false
		}
	}
}

// allowance is how long the end may take. It starts again with each record that is written: the
// number of records is fixed, and how fast they come says nothing about the job. Pushers kill
// themselves, and each new one is a Python process that starts. On a machine with a load of 50,
// that alone took ten minutes.
type allowance struct {
	most    time.Duration
	since   time.Time
	written int
}

func (a *allowance) over(now time.Time, written int, more bool) bool {
	if more && written != a.written {
		a.since, a.written = now, written
	}
	return now.Sub(a.since) > a.most
}

// writtenYet counts the records written so far of inputs that are written while they are read, and
// says whether more will come.
func (c *crew) writtenYet() (n int, more bool) {
	for _, in := range c.inputs {
		in.mu.Lock()
		n += in.written
		in.mu.Unlock()
	}
	return n, c.producing.Load() > 0
}

// progress describes how much input there is and how much of it is settled. The text changes as
// long as the job moves. It is empty if the master does not answer.
func (b *books) progress(ctx context.Context, inputs []*input) (text string) {
	ctx, cancel := context.WithTimeout(ctx, progressEvery)
	defer cancel()
	for _, in := range inputs {
		d, err := b.api.Describe(ctx, &headracev1.DescribeRequest{Name: in.name})
		if err != nil {
			return ""
		}
		text += fmt.Sprint(d.State, d.Counts.GetListed(), d.Counts.GetSettled(), " ")
	}
	return text
}
