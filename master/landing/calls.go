package landing

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// Register adds the Landing service.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	headracev1.RegisterLandingServer(r, &calls{s: s})
}

type calls struct {
	headracev1.UnimplementedLandingServer
	s *Service
}

func (c *calls) Layout(ctx context.Context, req *headracev1.LayoutRequest) (*headracev1.LayoutReply, error) {
	l, err := c.s.Layout(ctx, req.Dataset)
	if err != nil {
		return nil, statusOf(req.Dataset, err)
	}
	reply := &headracev1.LayoutReply{Partitions: uint32(l.Partitions), ChunkBytes: l.ChunkBytes, MaxChunkBytes: chunk.MaxBytes, MaxRecord: l.MaxRecord,
		Ended: l.Ended, StoredBytes: l.Stored, MaxBytes: l.MaxBytes, StageTtlMs: l.StageTTL.Milliseconds(), Key: l.Key, LandBytes: landMost}
	if u := l.Upload; u.URL != "" {
		reply.Upload = &headracev1.Upload{Url: u.URL, Stream: u.Stream, NowMs: u.Now.UnixMilli()}
	}
	return reply, nil
}

func (c *calls) Stage(ctx context.Context, req *headracev1.StageRequest) (*headracev1.StageReply, error) {
	l, err := c.s.Stage(ctx, req.Dataset, req.Transaction, int(req.Partition), req.Chunk)
	if err != nil {
		return nil, statusOf(req.Dataset, err)
	}
	return &headracev1.StageReply{Locator: l.String()}, nil
}

func (c *calls) Commit(ctx context.Context, req *headracev1.CommitRequest) (*headracev1.CommitReply, error) {
	done, err := c.s.Commit(ctx, req.Dataset, req.Transaction, req.Locators)
	if err != nil {
		return nil, statusOf(req.Dataset, err)
	}
	return &headracev1.CommitReply{Already: done.Already, Records: done.Records}, nil
}

func (c *calls) Land(ctx context.Context, req *headracev1.LandRequest) (*headracev1.CommitReply, error) {
	last := make([]NewChunk, len(req.Chunks))
	for i, n := range req.Chunks {
		last[i] = NewChunk{int(n.Partition), n.Chunk}
	}
	done, err := c.s.Land(ctx, req.Dataset, req.Transaction, req.Locators, last)
	if err != nil {
		return nil, statusOf(req.Dataset, err)
	}
	return &headracev1.CommitReply{Already: done.Already, Records: done.Records}, nil
}

func (c *calls) Landed(ctx context.Context, req *headracev1.LandedRequest) (*headracev1.LandedReply, error) {
	landed, records, err := c.s.Landed(ctx, req.Dataset, req.Transaction)
	if err != nil {
		return nil, statusOf(req.Dataset, err)
	}
	return &headracev1.LandedReply{Landed: landed, Records: records}, nil
}

func (c *calls) End(ctx context.Context, req *headracev1.EndRequest) (*headracev1.EndReply, error) {
	if err := c.s.End(ctx, req.Dataset); err != nil {
		return nil, statusOf(req.Dataset, err)
	}
	return &headracev1.EndReply{}, nil
}

func (c *calls) Chunks(ctx context.Context, req *headracev1.ChunksRequest) (*headracev1.ChunksReply, error) {
	stream, segments, err := c.s.Visible(ctx, req.Dataset, int(req.Partition), req.After, int(min(req.Max, mostListed)))
	if err != nil {
		return nil, statusOf(req.Dataset, err)
	}
	reply := &headracev1.ChunksReply{Stream: stream}
	for _, g := range segments {
		reply.Chunks = append(reply.Chunks, &headracev1.VisibleChunk{Number: g.ID, Start: g.Start, End: g.End, Locator: string(g.Locator)})
	}
	return reply, nil
}

// Read is for agents: they have locators, which name keys.
func (c *calls) Read(ctx context.Context, req *headracev1.ReadChunkRequest) (*headracev1.ReadChunkReply, error) {
	if _, err := chunk.ParseKey(req.Key); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	b, err := c.s.store.Get(ctx, req.Key, max(req.Offset, 0), req.Length)
	if err != nil {
		if _, gone := readChunk(ctx, c.s.store, req.Key); errors.Is(gone, dataset.ErrNoChunk) {
			return nil, status.Error(codes.NotFound, gone.Error())
		}
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &headracev1.ReadChunkReply{Data: b}, nil
}

// codeOf says which kind of error it is.
func codeOf(err error) codes.Code {
	_, full := errors.AsType[*Full](err)
	_, temporary := errors.AsType[*sources.Temporary](err)
	switch {
	case full:
		return codes.ResourceExhausted
	case errors.Is(err, ErrNoDataset):
		return codes.NotFound
	case errors.Is(err, ErrInvalid):
		return codes.InvalidArgument
	case errors.Is(err, ErrRefused):
		return codes.FailedPrecondition
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case temporary, errors.Is(err, ErrNotReady), errors.Is(err, serve.ErrStopped):
		return codes.Unavailable
	}
	return codes.Internal
}

func statusOf(name string, err error) error {
	st := status.New(codeOf(err), strings.ToValidUTF8(err.Error(), "?"))
	if with, werr := st.WithDetails(&headracev1.ErrorDetail{Dataset: strings.ToValidUTF8(name, "?")}); werr == nil {
		st = with
	}
	if full, ok := errors.AsType[*Full](err); ok {
		if with, werr := st.WithDetails(&headracev1.LandingFull{RetryAfterMs: full.After.Milliseconds()}); werr == nil {
			st = with
		}
	}
	return st.Err()
}
