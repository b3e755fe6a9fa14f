package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/master/landing"
	"github.com/headrace/headrace/sources"
)

// chunksOfMaster gives an agent chunks of pushed records: from the folder of a master with
// the same state folder, from the bucket of landing_storage, or from the master itself. A
// chunk's key is random, so a folder of another job has none of its chunks.
type chunksOfMaster struct {
	local  *landing.Local
	master headracev1.LandingClient
}

func (c *chunksOfMaster) Has(ctx context.Context, key string) (bool, error) {
	_, err := c.Get(ctx, key)
	if errors.Is(err, dataset.ErrNoChunk) {
		return false, nil
	}
	return err == nil, err
}

func (c *chunksOfMaster) Get(ctx context.Context, key string) ([]byte, error) {
	if c.local.There() {
		if b, err := c.local.Get(ctx, key); err == nil {
			return b, nil
		}
	}
	reply, err := c.master.Read(ctx, &headracev1.ReadChunkRequest{Key: key, Length: -1})
	switch status.Code(err) {
	case codes.OK:
		return reply.Data, nil
	case codes.NotFound:
		return nil, fmt.Errorf("%s: %w", key, dataset.ErrNoChunk)
	case codes.Canceled:
		return nil, errors.Join(ctx.Err(), err)
	case codes.PermissionDenied, codes.InvalidArgument, codes.Unimplemented:
		return nil, fmt.Errorf("chunk %s of pushed records: %w", key, err)
	}
	return nil, &sources.Temporary{Err: fmt.Errorf("chunk %s of pushed records: %w", key, err), Backoff: 200 * time.Millisecond}
}

func (c *chunksOfMaster) Stream(context.Context, string) (string, error) {
	return "", errors.New("only a master lists partitions of pushed records")
}

func (c *chunksOfMaster) Release(context.Context, string) error {
	return errors.New("only a master deletes what was pushed")
}

// localChunks are those that this process reads by itself.
func (a *app) localChunks() *landing.Local {
	return &landing.Local{At: landing.Folder(a.cfg.State), Open: a.landingOpener()}
}

// landingOpener opens the bucket of landing_storage; nil: chunks lie in the state folder.
func (a *app) landingOpener() func() (storage.Store, error) {
	if a.cfg.Landing == "" {
		return nil
	}
	return func() (storage.Store, error) {
		url := a.cfg.Landing + "/" + a.cfg.Job // jobs do not see each other's datasets
		store, err := a.connections.Bucket(a.cfg.LandingAs, url, []string{url})
		if err != nil {
			return nil, fmt.Errorf("landing_storage %s: %w", a.cfg.Landing, err)
		}
		return store, nil
	}
}

// openLanding opens the place of pushed records for a master, and checks that it can be
// used: a wrong name or key is reported at the start and not at the first push.
func (a *app) openLanding(ctx context.Context) (storage.Store, error) {
	open := a.landingOpener()
	if open == nil {
		return storage.OpenFolder(landing.Folder(a.cfg.State))
	}
	store, err := open()
	if err != nil {
		return nil, err
	}
	if _, err := store.List(ctx, "", "", 1); err != nil {
		return nil, fmt.Errorf("landing_storage: %w", err)
	}
	return store, nil
}
