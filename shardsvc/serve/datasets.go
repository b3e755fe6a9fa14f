package serve

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"google.golang.org/grpc/codes"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

func (d *datasets) Describe(ctx context.Context, req *headracev1.DescribeRequest) (*headracev1.Dataset, error) {
	var info shardsvc.DatasetInfo
	err := d.look(ctx, func(l *loop) (err error) {
		info, err = l.mustDataset(req.Name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return storedProto(info)
}

func (d *datasets) List(ctx context.Context, _ *headracev1.ListRequest) (*headracev1.ListReply, error) {
	all, err := d.all(ctx)
	return &headracev1.ListReply{Datasets: all}, err
}

func (d *datasets) all(ctx context.Context) ([]*headracev1.Dataset, error) {
	var infos []shardsvc.DatasetInfo
	if err := d.look(ctx, func(l *loop) error { infos = l.core.Datasets(); return nil }); err != nil {
		return nil, err
	}
	out := make([]*headracev1.Dataset, len(infos))
	for i, info := range infos {
		p, err := storedProto(info)
		if err != nil {
			return nil, err
		}
		out[i] = p
	}
	return out, nil
}

func (d *datasets) Pause(ctx context.Context, req *headracev1.PauseRequest) (*headracev1.PauseReply, error) {
	return &headracev1.PauseReply{}, d.setPaused(ctx, req.Name, true)
}

func (d *datasets) Resume(ctx context.Context, req *headracev1.ResumeRequest) (*headracev1.ResumeReply, error) {
	return &headracev1.ResumeReply{}, d.setPaused(ctx, req.Name, false)
}

func (d *datasets) setPaused(ctx context.Context, name string, paused bool) error {
	return callStatus(d.s.change(ctx, func(l *loop) error {
		info, err := l.mustDataset(name)
		if err != nil {
			return err
		}
		l.step(&shardsvc.SetPaused{ID: info.ID, Paused: paused})
		d.s.changed.fire()
		if err := l.rejected(); err != nil {
			return statusOf(codes.FailedPrecondition, fmt.Errorf("dataset %q: %w", name, err), detail{Dataset: name})
		}
		return nil
	}))
}

func (d *datasets) Delete(ctx context.Context, req *headracev1.DeleteRequest) (*headracev1.DeleteReply, error) {
	reply := &headracev1.DeleteReply{}
	err := d.s.change(ctx, func(l *loop) error {
		info, err := l.mustDataset(req.Name)
		if err != nil {
			return err
		}
		reply.Counts, reply.Leases = countsProto(info.Counts), uint32(info.Leases)
		if req.DryRun {
			return nil
		}
		for _, p := range l.core.Partitions(info.ID) {
			delete(l.needs, p.Number)
		}
		l.step(&shardsvc.RemoveDataset{ID: info.ID})
		d.s.changed.fire()
		return nil
	})
	if err != nil {
		return nil, callStatus(err)
	}
	return reply, nil
}

// State pages through partitions in order of number; the token is the last
// number of the page before.
func (d *datasets) State(ctx context.Context, req *headracev1.StateRequest) (*headracev1.StateReply, error) {
	size := int(req.PageSize)
	if size == 0 {
		size = defaultPage
	}
	if size > maxPage {
		return nil, statusOf(codes.InvalidArgument, fmt.Errorf("page_size %d: at most %d", size, maxPage), detail{Dataset: req.Name, Field: "page_size"})
	}
	after := uint64(0)
	if req.PageToken != "" {
		var err error
		if after, err = strconv.ParseUint(req.PageToken, 10, 32); err != nil {
			return nil, statusOf(codes.InvalidArgument, errors.New("page_token is not one that was given out"), detail{Dataset: req.Name, Field: "page_token"})
		}
	}
	var (
		passes []shardsvc.PassInfo
		more   bool
	)
	err := d.look(ctx, func(l *loop) error {
		info, err := l.mustDataset(req.Name)
		if err != nil {
			return err
		}
		passes = l.core.State(l.now(), info.ID, uint32(after), size)
		if n := len(passes); n > 0 {
			more = len(l.core.State(l.now(), info.ID, passes[n-1].Number, 1)) > 0
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	reply := &headracev1.StateReply{}
	for i := range passes {
		reply.Partitions = append(reply.Partitions, passProto(&passes[i]))
	}
	if more {
		reply.NextPageToken = strconv.FormatUint(uint64(passes[len(passes)-1].Number), 10)
	}
	return reply, nil
}

func (d *datasets) Job(ctx context.Context, _ *headracev1.JobRequest) (*headracev1.JobReply, error) {
	reply := &headracev1.JobReply{Version: d.s.cfg.Version, UptimeSeconds: time.Since(d.s.started).Seconds()}
	if h := d.s.http.Load(); h != nil {
		reply.Http = *h
	}
	err := d.look(ctx, func(l *loop) error {
		jobProto(l.core.Job(), reply)
		now := l.now() - l.given
		for _, a := range l.core.Agents() {
			reply.Agents = append(reply.Agents, agentProto(a, l.agents[a.Name], now))
		}
		for _, w := range l.core.Workers() {
			reply.Workers = append(reply.Workers, workerProto(w))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	reply.Datasets, err = d.all(ctx)
	return reply, err
}

// look is a view whose function may fail.
func (d *datasets) look(ctx context.Context, f func(*loop) error) error {
	return callStatus(d.s.do(ctx, &call{view: true, f: f}))
}
