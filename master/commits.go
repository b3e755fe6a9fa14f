package master

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

const (
	commitEvery  = 5 * time.Second
	commitAgain  = 24 * time.Hour // brokers forget offsets of idle groups after a week
	commitWithin = 20 * time.Second
	lastCommit   = 2 * time.Second // at the end of the process
)

// commits tells brokers how far their datasets are, for those whose spec names a
// group. The ledger is what counts; this is for the broker's own tools.
type commits struct {
	open Opener
	srv  interface {
		Datasets(context.Context) ([]serve.Dataset, error)
		LowMarks(ctx context.Context, dataset uint32) ([]sources.Mark, error)
	}
	log   *slog.Logger
	every time.Duration
	said  map[said]told
}

type said struct {
	dataset   uint32
	partition sources.PartitionID
}

type told struct {
	at   sources.Position
	when time.Time
}

// run commits until ctx ends, and once more then.
func (c *commits) run(ctx context.Context) {
	for pause(ctx, c.every) {
		c.round(ctx)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastCommit)
	defer cancel()
	c.round(last)
}

func (c *commits) round(ctx context.Context) {
	all, err := c.srv.Datasets(ctx)
	if err != nil {
		return // the shard service ends
	}
	for i := range all {
		d := &all[i]
		if !committed(d.Spec) {
			continue
		}
		if err := c.commit(ctx, d); err != nil && !errors.Is(err, serve.ErrUnknown) && !errors.Is(err, serve.ErrStopped) {
			c.log.Warn("the broker was not told our progress; it is tried again", "dataset", d.Name, "error", err)
		}
	}
}

func committed(spec *dataset.Spec) bool { return spec.Kafka != nil && spec.Kafka.Group != "" }

func (c *commits) commit(ctx context.Context, d *serve.Dataset) error {
	marks, err := c.srv.LowMarks(ctx, d.ID)
	if err != nil {
		return err
	}
	now := time.Now()
	var news []sources.Mark
	for _, m := range marks {
		old, any := c.said[said{d.ID, m.Partition}]
		if !any || old.at != m.Position || now.Sub(old.when) > commitAgain {
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
		c.said[said{d.ID, m.Partition}] = told{m.Position, now}
	}
	return nil
}
