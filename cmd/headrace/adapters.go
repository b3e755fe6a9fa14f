package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/headrace/headrace/agent"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/sample"
	"github.com/headrace/headrace/master"
	"github.com/headrace/headrace/sources"
)

// listSource opens datasets for a master; readSource for an agent.
func (a *app) listSource(log *slog.Logger) master.Opener {
	return func(_ context.Context, spec *dataset.Spec, known []sources.Segment) (sources.Source, error) {
		return a.openSource(spec, a.cfg.AllowRoots, known, log)
	}
}

func (a *app) readSource(log *slog.Logger) agent.Opener {
	return func(_ context.Context, spec *dataset.Spec) (sources.Source, error) {
		return a.openSource(spec, a.cfg.AllowRoots, nil, log)
	}
}

// openSource opens a source through the operator's connections.
func (a *app) openSource(spec *dataset.Spec, roots []string, known []sources.Segment, log *slog.Logger) (sources.Source, error) {
	return a.connections.Open(spec, dataset.Opening{AllowedRoots: roots, Known: known, Cache: filepath.Join(a.cfg.State, "cache"), Logger: log.With("dataset", spec.Name)})
}

// checkSpec refuses a spec at apply whose root is not allowed, whose files, topics
// or offsets are not there, or whose fields are not in the files' first line.
func (a *app) checkSpec(log *slog.Logger) func(context.Context, *dataset.Spec) error {
	return func(ctx context.Context, spec *dataset.Spec) error {
		src, err := a.openSource(spec.ForALook(), a.cfg.AllowRoots, nil, log)
		if err != nil {
			return err
		}
		defer func() { _ = src.Close() }()
		return sample.Try(ctx, spec, src)
	}
}
