package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

const (
	commitEvery  = 5 * time.Second
	commitAgain  = 24 * time.Hour // brokers forget offsets of idle groups after a week
	commitWithin = 20 * time.Second
	lastCommit   = 5 * time.Second // at the end of the process: a new group's first one takes the broker a moment
)

// commits tells brokers how far their datasets are, for those whose spec names a
// group: up to the newest bound checkpoint (docs/CUTS.md). The ledger is what
// counts; this is for the broker's own tools.
type commits struct {
	open Opener
	srv  interface {
		Datasets(context.Context) ([]serve.Dataset, error)
		CommitMarks(ctx context.Context, dataset uint32) ([]sources.Mark, error)
		Moved() <-chan struct{}
	}
	log   *slog.Logger
	every time.Duration

	mu   sync.Mutex // one round at a time
	said map[said]told
}

type said struct {
	dataset   uint32
	group     string // a new one has heard nothing
	partition sources.PartitionID
}

type told struct {
	at   sources.Position
	when time.Time
}

// run commits until ctx ends, and once more then. A checkpoint that is bound is
// told at once, and so is going back.
func (c *commits) run(ctx context.Context) {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for ctx.Err() == nil {
		moved := c.srv.Moved()
		c.warn(c.round(ctx))
		select {
		case <-ctx.Done():
		case <-moved:
		case <-tick.C:
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastCommit)
	defer cancel()
	c.warn(c.round(last))
}

func (c *commits) warn(err error) {
	if err != nil {
		c.log.Warn("the broker was not told our progress; it is tried again", "error", err)
	}
}

// round tells what is new. Its error names every dataset whose broker was not
// told.
func (c *commits) round(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, err := c.srv.Datasets(ctx)
	if err != nil {
		return nil // the shard service ends
	}
	var failed []error
	for i := range all {
		d := &all[i]
		if !committed(d.Spec) {
			continue
		}
		if err := c.commit(ctx, d); err != nil && !errors.Is(err, serve.ErrUnknown) && !errors.Is(err, serve.ErrStopped) {
			failed = append(failed, fmt.Errorf("dataset %s: %w", d.Name, err))
		}
	}
	return errors.Join(failed...)
}

func committed(spec *dataset.Spec) bool { return spec.Kind().Commits && progressOf(spec) != "" }

// progressOf names whose progress the broker is told.
func progressOf(spec *dataset.Spec) string { return spec.Source.Traits().Progress }

func (c *commits) commit(ctx context.Context, d *serve.Dataset) error {
	marks, err := c.srv.CommitMarks(ctx, d.ID)
	if err != nil {
		return err
	}
	now := time.Now()
	var news []sources.Mark
	for _, m := range marks {
		old, any := c.said[said{d.ID, progressOf(d.Spec), m.Partition}]
		if !any || old.at != m.Position || now.Sub(old.when) > commitAgain {
			m.Back = any && m.Position.Compare(old.at) < 0
			news = append(news, m)
		}
	}
	if len(news) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commitWithin)
	defer cancel()
	src, err := c.open(ctx, d.Spec, nil)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // what it was told is told
	to, ok := src.(sources.Committer)
	if !ok {
		return errors.New("the source keeps no offsets")
	}
	if err := to.Commit(ctx, news); err != nil {
		return err
	}
	for _, m := range news {
		c.said[said{d.ID, progressOf(d.Spec), m.Partition}] = told{m.Position, now}
	}
	return nil
}
