package serve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/wire"
	"google.golang.org/grpc/codes"
)

// What a deleted dataset has at its source is removed when it is deleted. If that is cut short,
// the core still knows of it (shardsvc.Leftover). It is tried again when the master starts, from
// time to time, and before a dataset of the same name is applied.

// releaseAgain is the time between two tries.
const releaseAgain = 30 * time.Second

// releaseLeftovers runs until ctx ends.
func (s *Server) releaseLeftovers(ctx context.Context) {
	if s.cfg.Release == nil {
		return
	}
	tick := time.NewTicker(releaseAgain)
	defer tick.Stop()
	for {
		var all []shardsvc.Leftover
		if err := s.view(ctx, func(l *loop) { all = l.core.Leftovers() }); err != nil {
			return
		}
		for _, x := range all {
			if err := s.releaseOne(ctx, x); err != nil && ctx.Err() == nil && !errors.Is(err, ErrStopped) {
				s.cfg.Logger.Warn("a deleted dataset still has something at its source; removing that is tried again", "dataset", x.Name, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// releaseOne removes what a deleted dataset has at its source, and has the core forget it. Only one
// call does so at a time. The others then find that nothing is left.
func (s *Server) releaseOne(ctx context.Context, x shardsvc.Leftover) error {
	select {
	case s.releasing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.releasing }()
	left := false
	if err := s.view(ctx, func(l *loop) { left = l.leftover(x.ID) }); err != nil || !left {
		return err
	}
	kept, err := decodeStored(x.Spec)
	if err != nil {
		return err
	}
	if err := s.cfg.Release(ctx, kept.spec); err != nil {
		return err
	}
	return s.change(ctx, func(l *loop) error {
		l.step(&shardsvc.SourceReleased{ID: x.ID})
		return l.rejected()
	})
}

func (l *loop) leftover(id shardsvc.DatasetID) bool {
	for _, x := range l.core.Leftovers() {
		if x.ID == id {
			return true
		}
	}
	return false
}

// leftoverOf returns a deleted dataset of the same name whose source is of the same kind, if
// something of it is left there. A new one would find that.
func (l *loop) leftoverOf(spec *dataset.Spec) *shardsvc.Leftover {
	for _, x := range l.core.Leftovers() {
		kept, err := decodeStored(x.Spec)
		if x.Name == spec.Name && (err != nil || kept.spec.Kind().Name == spec.Kind().Name) {
			return &x
		}
	}
	return nil
}

// releaseBefore removes what a deleted dataset has left that the new one would find.
func (d *datasets) releaseBefore(ctx context.Context, spec *dataset.Spec) error {
	for {
		var left *shardsvc.Leftover
		if err := d.look(ctx, func(l *loop) error {
			left = l.leftoverOf(spec)
			return nil
		}); err != nil || left == nil || d.s.cfg.Release == nil {
			return err
		}
		look, cancel := context.WithTimeout(ctx, checkWithin)
		err := d.s.releaseOne(look, *left)
		cancel()
		if err != nil {
			return stillThere(spec, err)
		}
	}
}

func stillThere(spec *dataset.Spec, err error) error {
	return statusOf(codes.FailedPrecondition, fmt.Errorf("dataset %q was deleted, and what it had at its source (%s) could not be removed yet: %w",
		spec.Name, wire.Valid(spec.Source.Traits().AtSource), err),
		detail{Dataset: spec.Name, Hint: "apply it again when its source answers; or give the new dataset another name"})
}

// releaseReplaced removes what a dataset has at its source that another spec has replaced before
// anything of it was read. If that fails, it stays there.
func (d *datasets) releaseReplaced(ctx context.Context, spec *dataset.Spec) error {
	if d.s.cfg.Release == nil {
		return nil
	}
	if err := d.s.cfg.Release(ctx, spec); err != nil {
		return statusOf(codes.Unavailable, fmt.Errorf("the new spec of dataset %q is applied, but what it had at its old source (%s) is not removed; remove that with the source's own tools: %w",
			spec.Name, wire.Valid(spec.Source.Traits().AtSource), err), detail{Dataset: spec.Name})
	}
	return nil
}
