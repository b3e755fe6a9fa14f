package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"google.golang.org/grpc"

	"github.com/headrace/headrace/agent"
	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/deadletter"
	"github.com/headrace/headrace/internal/sample"
	"github.com/headrace/headrace/master"
	"github.com/headrace/headrace/master/landing"
	"github.com/headrace/headrace/sources"
)

// listSource opens datasets for a master; readSource for an agent.
func (a *app) listSource(log *slog.Logger) master.Opener {
	chunks := &landing.Local{At: landing.Folder(a.cfg.State)}
	return func(_ context.Context, spec *dataset.Spec, known []sources.Segment) (sources.Source, error) {
		return a.openSource(spec, dataset.Opening{AllowedRoots: a.cfg.AllowRoots, Known: known, Chunks: chunks, Logger: log})
	}
}

func (a *app) readSource(conn grpc.ClientConnInterface, log *slog.Logger) agent.Opener {
	chunks := &chunksOfMaster{local: &landing.Local{At: landing.Folder(a.cfg.State)}, master: headracev1.NewLandingClient(conn)}
	return func(_ context.Context, spec *dataset.Spec) (sources.Source, error) {
		return a.openSource(spec, dataset.Opening{AllowedRoots: a.cfg.AllowRoots, Chunks: chunks, Logger: log})
	}
}

// openSource opens a source through the operator's connections.
func (a *app) openSource(spec *dataset.Spec, o dataset.Opening) (sources.Source, error) {
	o.Logger = o.Logger.With("dataset", spec.Name)
	o.Cache = filepath.Join(a.cfg.State, "cache")
	return a.connections.Open(spec, o)
}

// checkSpec refuses a spec at apply whose root is not allowed, whose files, topics
// or offsets are not there, or whose fields are not in the files' first line.
func (a *app) checkSpec(log *slog.Logger) func(context.Context, *dataset.Spec) error {
	chunks := &landing.Local{At: landing.Folder(a.cfg.State)}
	return func(ctx context.Context, spec *dataset.Spec) error {
		if k := spec.DeadLetter; k != nil && k.Files != "" {
			if _, err := deadletter.FolderIn(a.cfg.AllowRoots, k.Files); err != nil {
				return err
			}
		}
		src, err := a.openSource(spec.ForALook(), dataset.Opening{AllowedRoots: a.cfg.AllowRoots, Chunks: chunks, Logger: log})
		if err != nil {
			return err
		}
		defer func() { _ = src.Close() }()
		return sample.Try(ctx, spec, src)
	}
}
