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

// A commit is early when the broker is told that records are done which no
// checkpoint has. Offsets are read from the broker, and then compared with the
// checkpoints that are there by then: in one of a replicated model, in all ranks'
// together of a private one, the first pass must have all below. A shared job that
// has no bound checkpoint yet commits what is acked, so that nothing is asked there.

const (
	commitsEvery  = 100 * time.Millisecond
	commitsWithin = time.Minute // at the end
)

// commitsBound: the broker is told of bound checkpoints, and of nothing else. What is
// done of bit_exact batches is no offset of a partition.
func (c *crew) commitsBound() bool {
	return c.broker != nil && c.o.Source != Landing && !c.o.Journal && c.o.Model != "shared" && c.saves != carriedCut && !c.exact
}

// early is what checkpoints have of the first pass.
type early struct {
	inputs  []*input
	private bool
	known   map[string]bool // folders in the archive
	all     map[key]bool    // private: in any
	upTo    [][]int64       // by input and partition: all below is in one, or in all
	checks  int
}

func newEarly(inputs []*input, private bool) *early {
	e := &early{inputs: inputs, private: private, known: map[string]bool{}, all: map[key]bool{}}
	for _, in := range inputs {
		e.upTo = append(e.upTo, make([]int64, in.partitions))
	}
	return e
}

// take reads what is new in the archive.
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
			continue // it is being linked; the judge says what is wrong with it
		}
		e.known[f.Name()] = true
		in, dropped, err := members(&m.Cut, e.inputs)
		if err != nil {
			continue // so does he of this
		}
		maps.Copy(in, dropped) // that is done, too
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

// judge says which of an input's offsets are early.
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
				return // who collects says it
			}
			for _, in := range c.inputs { // what a checkpoint has was sent before it
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

// allTold: what the broker was told is every record.
func (in *input) allTold(told []int64) bool {
	for p, n := range told {
		if n != int64(len(in.rowsOf(p))) {
			return false
		}
	}
	return told != nil
}

// committedAll: at the end everything is in bound checkpoints, and the broker hears
// of it.
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
			if c.broker.away() { // it has a deadline of its own
				since = time.Now()
			}
			if ctx.Err() != nil || time.Since(since) > commitsWithin {
				c.wrongf("%s is not committed up to its end within %v of it", in.name, commitsWithin)
				return
			}
		}
	}
}
