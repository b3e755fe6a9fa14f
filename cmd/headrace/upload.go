package main

import (
	"context"
	"errors"

	"github.com/headrace/headrace/connectors/go/push"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/internal/storage/s3"
)

// putter opens the bucket that the master names, with this machine's own credentials: those
// of landing_connection, else the credentials of the environment.
func (a *app) putter(url string) (push.Putter, error) {
	b, err := a.connections.Bucket(a.cfg.LandingAs, url, []string{url})
	if err != nil {
		return nil, err
	}
	return bucketPutter{b}, nil
}

type bucketPutter struct{ *s3.Bucket }

// PutNew counts an object that is there already as written: an earlier try wrote it, and
// its answer was lost. Nobody else has the key, and the commit checks the object.
func (p bucketPutter) PutNew(ctx context.Context, key string, data []byte) error {
	switch err := p.Bucket.PutNew(ctx, key, data); {
	case errors.Is(err, storage.ErrExists):
		return nil
	case errors.Is(err, storage.ErrPassing):
		return passing{err}
	default:
		return err
	}
}

// passing is an error after which push tries again.
type passing struct{ error }

func (p passing) Temporary() bool { return true }
func (p passing) Unwrap() error   { return p.error }
