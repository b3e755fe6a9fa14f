package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"google.golang.org/grpc"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/bucket"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/ckpt"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/deadletter"
	"github.com/headrace/headrace/internal/sample"
	"github.com/headrace/headrace/master"
	"github.com/headrace/headrace/sources"
)

// listSource opens datasets for a master; readSource for an agent.
func (a *app) listSource(log *slog.Logger) master.Opener {
	chunks := a.localChunks()
	return func(_ context.Context, spec *dataset.Spec, known []sources.Segment) (sources.Source, error) {
		return a.openSource(spec, dataset.Opening{AllowedRoots: a.cfg.AllowRoots, Known: known, Chunks: chunks, Logger: log})
	}
}

func (a *app) readSource(conn grpc.ClientConnInterface, log *slog.Logger) func(context.Context, *dataset.Spec) (sources.Source, error) {
	chunks := &chunksOfMaster{local: a.localChunks(), master: headracev1.NewLandingClient(conn)}
	return func(_ context.Context, spec *dataset.Spec) (sources.Source, error) {
		return a.openToRead(spec, dataset.Opening{AllowedRoots: a.cfg.AllowRoots, Chunks: chunks, Logger: log})
	}
}

// checkpoints opens checkpoints that lie in buckets, through the operator's connections.
func (a *app) checkpoints() *bucket.Places {
	return bucket.New(func(url string) (bucket.Client, error) { return a.connections.Checkpoints(url) })
}

// checkpointsOn says where a path of checkpoints lies.
func (a *app) checkpointsOn(ctx context.Context) ckpt.On {
	places := a.checkpoints()
	return func(path string) manifest.FS { return places.On(ctx, path, manifest.OS{}) }
}

// openSource opens a source through the operator's connections.
func (a *app) openSource(spec *dataset.Spec, o dataset.Opening) (sources.Source, error) {
	o.Logger = o.Logger.With("dataset", spec.Name)
	o.Cache = filepath.Join(a.cfg.State, "cache")
	return a.connections.Open(spec, o)
}

// openToRead is openSource for callers that decode the records. It also loads the schemas.
func (a *app) openToRead(spec *dataset.Spec, o dataset.Opening) (sources.Source, error) {
	src, err := a.openSource(spec, o)
	if err != nil {
		return nil, err
	}
	return a.withSchemas(spec, src, o)
}

// withSchemas returns the source with the schemas that its spec's format needs. Wrap a source
// before this call, not its result: decode.SchemasOf finds the schemas only at the outermost one.
// After an error the source is closed.
func (a *app) withSchemas(spec *dataset.Spec, src sources.Source, o dataset.Opening) (sources.Source, error) {
	read, err := a.connections.WithSchemas(spec, src, o.AllowedRoots, o.Logger)
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return read, nil
}

// checkSpec is asked at apply. It refuses a spec if a folder that it names, also that of its
// dead letters, is not in an allowed root, if a source or a schema cannot be opened, or if a
// short look finds a fault (sample.Try).
func (a *app) checkSpec(log *slog.Logger) func(context.Context, *dataset.Spec) error {
	chunks := a.localChunks()
	return func(ctx context.Context, spec *dataset.Spec) error {
		if k := spec.DeadLetter; k != nil && k.Files != "" {
			if _, err := deadletter.FolderIn(a.cfg.AllowRoots, k.Files); err != nil {
				return err
			}
		}
		for _, in := range spec.Inputs() {
			src, err := a.openToRead(in.ForALook(), dataset.Opening{AllowedRoots: a.cfg.AllowRoots, Chunks: chunks, Logger: log})
			if err != nil {
				return err
			}
			err = sample.Try(ctx, in, src)
			_ = src.Close() // it was only looked at
			if err != nil {
				return err
			}
		}
		return nil
	}
}
