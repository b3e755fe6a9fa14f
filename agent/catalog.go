package agent

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/agent/feed"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"
)

// findWait bounds how long an OPEN waits for the master's answer, also while the master
// is started again. The Python client gives up after 30 s; it must hear the reason
// before that.
const (
	findWait  = 25 * time.Second
	findAgain = 20 * time.Millisecond
)

// catalog asks the master what a dataset is, and shares its source among the
// streams that read it.
type catalog struct {
	client pb.DatasetsClient
	open   Opener

	mu      sync.Mutex
	sources map[string]*shared // by spec
}

// shared is a source with its users.
type shared struct {
	users int
	once  sync.Once
	src   sources.Source
	err   error
}

// Find implements feed.Catalog.
func (c *catalog) Find(ctx context.Context, name string) (*feed.Dataset, error) {
	ctx, cancel := context.WithTimeout(ctx, findWait)
	defer cancel()
	d, err := c.describe(ctx, name)
	if err != nil {
		return nil, describeError(err)
	}
	spec, err := dataset.FromJSON([]byte(d.SpecJson))
	if err != nil {
		return nil, &frame.Error{Code: frame.CodeFailed, Message: err.Error(), Hint: "master and agent are of different versions"}
	}
	out := &feed.Dataset{ID: d.Id, Name: d.Name, Unit: d.Unit, Spec: spec}
	var opened []func()
	out.Close = func() {
		for _, release := range opened {
			release()
		}
	}
	for _, in := range spec.Inputs() {
		src, release, err := c.source(ctx, in.Source.Kind().Name+" "+d.SpecJson, in)
		if err != nil {
			out.Close()
			return nil, &frame.Error{Code: frame.CodeFailed, Message: "dataset " + name + ": " + err.Error()}
		}
		if opened = append(opened, release); len(opened) == 1 && spec.Backfill != nil {
			out.Backfill = &feed.Backfill{Spec: in, Source: src}
		} else {
			out.Source = src
		}
	}
	return out, nil
}

// describe asks until the master answers. A trainer is not turned away because the
// master is being started again.
func (c *catalog) describe(ctx context.Context, name string) (*pb.Dataset, error) {
	for {
		d, err := c.client.Describe(ctx, &pb.DescribeRequest{Name: name}, grpc.WaitForReady(true))
		if status.Code(err) != codes.Unavailable {
			return d, err
		}
		again := time.NewTimer(findAgain)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, err
		}
	}
}

func (c *catalog) source(ctx context.Context, key string, spec *dataset.Spec) (sources.Source, func(), error) {
	c.mu.Lock()
	s := c.sources[key]
	if s == nil {
		s = &shared{}
		c.sources[key] = s
	}
	s.users++
	c.mu.Unlock()
	s.once.Do(func() { s.src, s.err = c.open(context.WithoutCancel(ctx), spec) })
	release := sync.OnceFunc(func() {
		c.mu.Lock()
		s.users--
		last := s.users == 0
		if last && c.sources[key] == s {
			delete(c.sources, key)
		}
		c.mu.Unlock()
		if last && s.src != nil {
			_ = s.src.Close() // reading only: nothing is lost
		}
	})
	if s.err != nil {
		release()
		return nil, nil, s.err
	}
	return s.src, release, nil
}

// describeError turns the master's refusal into an error for the trainer.
func describeError(err error) error {
	st := status.Convert(err)
	e := &frame.Error{Code: frame.CodeFailed, Message: st.Message()}
	for _, d := range st.Details() {
		if detail, ok := d.(*pb.ErrorDetail); ok {
			e.Hint = detail.Hint
		}
	}
	switch st.Code() {
	case codes.NotFound:
		e.Code = frame.CodeNotFound
	case codes.InvalidArgument:
		e.Code = frame.CodeInvalid
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled: // canceled: this agent stops
		e.Code = frame.CodeUnavailable
		e.Message = "the master cannot be asked now: " + st.Message()
	}
	return e
}
