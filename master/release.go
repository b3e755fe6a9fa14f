package master

import (
	"context"
	"errors"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

const releaseWithin = 20 * time.Second

// release tells the source of a deleted dataset that it need not keep records any more.
func (c *commits) release(ctx context.Context, spec *dataset.Spec) error {
	spec = liveInput(spec)
	if !spec.Kind().Retains {
		return nil
	}
	c.telling.Lock()
	defer c.telling.Unlock()
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	src, err := c.open(ctx, spec, nil)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	r, ok := src.(sources.Retainer)
	if !ok {
		return errors.New("the source cannot keep records from deletion")
	}
	return r.Release(ctx)
}
