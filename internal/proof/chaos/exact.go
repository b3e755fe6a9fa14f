package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/headrace/headrace/internal/proof/child"
	"github.com/headrace/headrace/internal/proof/testbroker"
)

// With bit_exact, the batches of a step do not depend on anything that happens to the job. Each rank
// writes down a hash of its batches. They are compared with those of an undisturbed job that reads
// the same files with another number of ranks.

const (
	exactBatch    = 24 // rows
	referenceRate = 1e6
	referenceEnds = 2 * time.Minute
)

// exactRows is the number of rows in a batch. 0: the run is not bit_exact.
func (c *crew) exactRows() int {
	if !c.exact {
		return 0
	}
	return exactBatch
}

func (c *crew) judgeExact(ctx context.Context, lives []*life, v *Verdict) error {
	want, err := c.undisturbed(ctx)
	if err != nil {
		return fmt.Errorf("the same job without trouble: %w", err)
	}
	v.judgeSteps(lives, want)
	return nil
}

// judgeSteps compares the batches that ranks have read with those of the undisturbed job.
func (v *Verdict) judgeSteps(lives []*life, want map[turn]int64) {
	seen := map[turn]bool{}
	for _, l := range lives {
		for at, hash := range l.hashes {
			seen[at] = true
			if expected, ok := want[at]; !ok || hash != expected {
				v.say("bit_exact: step %d of virtual rank %d of %v is batch %x, and batch %x without trouble", at.step, at.virtual, l, hash, expected)
			}
		}
	}
	if len(seen) != len(want) || len(want) == 0 {
		v.say("bit_exact: %d batches were read, and %d without trouble", len(seen), len(want))
	}
}

// undisturbed runs the same job without trouble, and gives the hash of each batch.
func (c *crew) undisturbed(ctx context.Context) (all map[turn]int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, referenceEnds)
	defer cancel()
	n := &crew{o: c.o, dir: filepath.Join(c.dir, "undisturbed"), data: c.data, run: c.run + "-undisturbed", rnd: c.rnd, quit: make(chan struct{}), inputs: c.inputs, choices: c.choices, calm: true}
	n.o.Rate, n.saves, n.sockets = referenceRate, byCheckpointer, filepath.Join(c.sockets, "u")
	n.damaged = nil
	for _, folder := range []string{n.dir, n.sockets, n.archive(), n.pids()} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			return nil, err
		}
	}
	port, err := testbroker.FreePort()
	if err != nil {
		return nil, err
	}
	n.address = local(port)
	if n.books, err = openBooks(n.address, filepath.Join(n.dir, "state")); err != nil {
		return nil, err
	}
	defer func() { _ = n.books.conn.Close() }()
	if err := n.writeTrainer(); err != nil {
		return nil, err
	}
	n.agents = make([]*child.Process, 1)
	err = n.startAll(ctx, len(c.seats)-1)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for err == nil && !n.over() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			err = errors.New("it has not ended in time: " + n.who())
		}
	}
	n.stopAll()
	if err = errors.Join(err, os.RemoveAll(n.sockets)); err != nil || len(n.wrong) > 0 {
		return nil, errors.Join(err, fmt.Errorf("%v", n.wrong))
	}
	lives, err := n.readJournals()
	all = map[turn]int64{}
	for _, l := range lives {
		for at, hash := range l.hashes {
			all[at] = hash
		}
	}
	return all, err
}
