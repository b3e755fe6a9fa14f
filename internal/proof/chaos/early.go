package chaos

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/headrace/headrace/flashckpt/manifest"
)

// A commit is early if it tells the broker that records are done which no checkpoint has. We read
// the offsets from the broker, then look at the checkpoints that exist by then. All records of the
// first pass below a committed offset must be in one checkpoint (replicated), or in the checkpoints
// of all ranks together (private). A shared job without a bound checkpoint commits what is acked,
// so shared jobs are not checked.

const (
	commitsEvery  = 100 * time.Millisecond
	commitsWithin = time.Minute // how long the last commit may take at the end
)

// commitsBound reports whether the broker hears of bound checkpoints and of nothing else. The progress
// of bit_exact batches is not an offset of a partition, so it is never committed.
func (c *crew) commitsBound() bool {
	return c.broker != nil && c.o.Source != Landing && !c.o.Journal && c.o.Model != "shared" && c.saves != carriedCut && !c.exact
}

// early knows which records of the first pass are in checkpoints.
type early struct {
	inputs  []*input
	private bool
	known   map[string]bool // folders of the archive that were read
	all     map[key]bool    // private: records that are in any checkpoint
	upTo    [][]int64       // by input and partition: all records below are in one checkpoint (replicated), or in some (private)
	checks  int
}

func newEarly(inputs []*input, private bool) *early {
	e := &early{inputs: inputs, private: private, known: map[string]bool{}, all: map[key]bool{}}
	for _, in := range inputs {
		e.upTo = append(e.upTo, make([]int64, in.partitions))
	}
	return e
}

// take reads the checkpoints that are new in the archive.
func (e *early) take(archive string) error {
	folders, err := os.ReadDir(archive)
	if err != nil {
		return err
	}
	for _, f := range folders {
		if e.known[f.Name()] {
			continue
		}
		m, err := manifest.Load(manifest.OS{}, filepath.Join(archive, f.Name(), manifest.FileName))
		if err != nil {
			continue // it is being linked now; checkAll reports a damaged one
		}
		e.known[f.Name()] = true
		in, dropped, err := members(&m.Cut, e.inputs)
		if err != nil {
			continue // checkAll reports this too
		}
		maps.Copy(in, dropped) // dropped records are done too
		e.has(in)
	}
	return nil
}

func (e *early) has(in map[key]bool) {
	if e.private {
		for k := range in {
			e.all[k] = true
		}
		in = e.all
	}
	for n, input := range e.inputs {
		for p := range e.upTo[n] {
			below := int64(0)
			for _, id := range input.rowsOf(p) {
				if !in[key(id)|key(n)<<56] {
					break
				}
				below++
			}
			e.upTo[n][p] = max(e.upTo[n][p], below)
		}
	}
}

// judge lists the offsets of input n that are early.
func (e *early) judge(n int, offsets []int64) (wrong []string) {
	for p, at := range offsets {
		e.checks++
		if at > e.upTo[n][p] {
			wrong = append(wrong, fmt.Sprintf("%s/%d is committed up to %d, and no checkpoint has all below: at most %d", e.inputs[n].name, p, at, e.upTo[n][p]))
		}
	}
	return wrong
}

// watchCommits looks for early commits until the run ends.
func (c *crew) watchCommits(ctx context.Context) {
	e := newEarly(c.inputs, c.o.Model == "private")
	tick := time.NewTicker(commitsEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.quit:
			c.mu.Lock()
			c.commits = e.checks
			c.mu.Unlock()
			return
		case <-tick.C:
		}
		for n, in := range c.inputs {
			offsets := c.broker.heard(ctx, in)
			if err := c.collect(); err != nil {
				return // the goroutine that collects reports it
			}
			for _, in := range c.inputs { // a checkpoint holds only records that were sent before it
				if in.placed(ctx) != nil {
					return
				}
			}
			if err := e.take(c.archive()); err != nil {
				c.wrongf("%v", err)
				return
			}
			if wrong := e.judge(n, offsets); len(wrong) > 0 {
				c.wrongf("%v", wrong)
				return
			}
		}
	}
}

// allTold reports whether the broker was told that every record is done.
func (in *input) allTold(told []int64) bool {
	for p, n := range told {
		if n != int64(len(in.rowsOf(p))) {
			return false
		}
	}
	return told != nil
}

// committedAll waits until the broker was told that all records are done. At the end bound
// checkpoints hold everything.
func (c *crew) committedAll(ctx context.Context) {
	tick := time.NewTicker(commitsEvery)
	defer tick.Stop()
	since := time.Now()
	for _, in := range c.inputs {
		for !in.allTold(c.broker.heard(ctx, in)) {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
			if c.broker.away() { // its start has a deadline of its own
				since = time.Now()
			}
			if ctx.Err() != nil || time.Since(since) > commitsWithin {
				c.wrongf("%s is not committed up to its end within %v after the end of data", in.name, commitsWithin)
				return
			}
		}
	}
}
