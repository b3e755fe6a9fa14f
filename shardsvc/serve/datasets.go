package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/wire"
	"google.golang.org/grpc/codes"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

func (d *datasets) Describe(ctx context.Context, req *headracev1.DescribeRequest) (*headracev1.Dataset, error) {
	var info shardsvc.DatasetInfo
	var stands *shardsvc.Imbalance
	err := d.look(ctx, func(l *loop) (err error) {
		info, err = l.mustDataset(req.Name)
		stands = l.core.Imbalance(info.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return d.proto(info, stands)
}

// proto returns a dataset as Describe and List show it.
func (d *datasets) proto(info shardsvc.DatasetInfo, stands *shardsvc.Imbalance) (*headracev1.Dataset, error) {
	p, err := storedProto(info)
	if err == nil {
		p.Retention = retentionProto(nearest(d.s.retention(info.ID)))
		p.Silence = d.s.silence(info.ID)
		p.Imbalance = imbalanceProto(stands)
	}
	return p, err
}

func (d *datasets) List(ctx context.Context, _ *headracev1.ListRequest) (*headracev1.ListReply, error) {
	all, err := d.all(ctx)
	return &headracev1.ListReply{Datasets: all}, err
}

func (d *datasets) all(ctx context.Context) ([]*headracev1.Dataset, error) {
	var infos []shardsvc.DatasetInfo
	var stand []*shardsvc.Imbalance
	if err := d.look(ctx, func(l *loop) error {
		infos = l.core.Datasets()
		for _, info := range infos {
			stand = append(stand, l.core.Imbalance(info.ID))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	out := make([]*headracev1.Dataset, len(infos))
	for i, info := range infos {
		p, err := d.proto(info, stand[i])
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
	var removed *shardsvc.Leftover
	err := d.s.change(ctx, func(l *loop) error {
		info, err := l.mustDataset(req.Name)
		if err != nil {
			return err
		}
		reply.Counts, reply.Leases = countsProto(info.Counts, info.Options.Unit), uint32(info.Leases)
		kept, err := decodeStored(info.Spec)
		if err == nil { // a dataset with a spec of another version is deleted as well
			reply.AtSource = wire.Valid(kept.spec.Source.Traits().AtSource)
		}
		if req.DryRun {
			return nil
		}
		if err == nil && d.s.cfg.Release != nil {
			removed = &shardsvc.Leftover{ID: info.ID, Name: info.Name, Spec: info.Spec}
		}
		l.forget(info.ID, removed != nil)
		d.s.changed.fire()
		return nil
	})
	if err != nil {
		return nil, callStatus(err)
	}
	if removed != nil {
		if err := d.s.releaseOne(ctx, *removed); err != nil {
			return nil, statusOf(codes.Unavailable, fmt.Errorf("dataset %q is deleted, but not what it has at its source (%s); the master tries again every %v: %w",
				removed.Name, reply.AtSource, releaseAgain, err), detail{Dataset: removed.Name})
		}
	}
	return reply, nil
}

// forget removes a dataset from the core, and the open requests for its segments. leftover says
// that something of it may be left at its source.
func (l *loop) forget(id shardsvc.DatasetID, leftover bool) {
	for _, p := range l.core.Partitions(id) {
		delete(l.needs, p.Number)
	}
	l.step(&shardsvc.RemoveDataset{ID: id, Leftover: leftover})
}

// State pages through partitions in order of number; the token is the last
// number of the page before.
func (d *datasets) State(ctx context.Context, req *headracev1.StateRequest) (*headracev1.StateReply, error) {
	size, after, err := page(req.Name, req.PageSize, req.PageToken)
	if err != nil {
		return nil, err
	}
	var (
		passes []shardsvc.PassInfo
		more   bool
		kept   []Retention
	)
	err = d.look(ctx, func(l *loop) error {
		info, err := l.mustDataset(req.Name)
		if err != nil {
			return err
		}
		kept = d.s.retention(info.ID)
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
		p := passProto(&passes[i])
		if at := slices.IndexFunc(kept, func(r Retention) bool { return r.Partition == p.Number }); at >= 0 {
			p.Retention = retentionProto(&kept[at])
		}
		reply.Partitions = append(reply.Partitions, p)
	}
	if more {
		reply.NextPageToken = strconv.FormatUint(uint64(passes[len(passes)-1].Number), 10)
	}
	return reply, nil
}

// page reads the size and the token of a paged request. after is the last number of the page
// before.
func page(name string, size uint32, token string) (most int, after uint64, err error) {
	if most = int(size); most == 0 {
		most = defaultPage
	}
	if most > maxPage {
		return 0, 0, statusOf(codes.InvalidArgument, fmt.Errorf("page_size %d: at most %d", most, maxPage), detail{Dataset: name, Field: "page_size"})
	}
	if token != "" {
		if after, err = strconv.ParseUint(token, 10, 32); err != nil {
			return 0, 0, statusOf(codes.InvalidArgument, errors.New("page_token is not one that was given out"), detail{Dataset: name, Field: "page_token"})
		}
	}
	return most, after, nil
}

// Excluded pages through the excluded ranges. The token is the number of ranges in earlier
// pages.
func (d *datasets) Excluded(ctx context.Context, req *headracev1.ExcludedRequest) (*headracev1.ExcludedReply, error) {
	size, after, err := page(req.Name, req.PageSize, req.PageToken)
	if err != nil {
		return nil, err
	}
	var (
		some    []shardsvc.ExcludedInfo
		dropped []shardsvc.DroppedInfo
		total   int
		drops   int
	)
	err = d.look(ctx, func(l *loop) error {
		info, err := l.mustDataset(req.Name)
		if err != nil {
			return err
		}
		some, total = l.core.Excluded(info.ID, int(after), size)
		if after == 0 {
			dropped, drops = l.core.Dropped(info.ID, maxPage)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	reply := &headracev1.ExcludedReply{Total: uint64(total), DroppedTotal: uint64(drops)}
	for i := range dropped {
		reply.Dropped = append(reply.Dropped, droppedProto(&dropped[i]))
	}
	for i := range some {
		reply.Ranges = append(reply.Ranges, excludedProto(&some[i]))
	}
	if next := int(after) + len(some); len(some) > 0 && next < total {
		reply.NextPageToken = strconv.Itoa(next)
	}
	return reply, nil
}

func (d *datasets) Job(ctx context.Context, _ *headracev1.JobRequest) (*headracev1.JobReply, error) {
	reply := &headracev1.JobReply{Version: d.s.cfg.Version, UptimeSeconds: time.Since(d.s.started).Seconds()}
	if h := d.s.http.Load(); h != nil {
		reply.Http = *h
	}
	var cuts []shardsvc.CutInfo
	err := d.look(ctx, func(l *loop) error {
		jobProto(l.core.Job(), reply)
		cuts = l.core.Cuts()
		now := l.now() - l.given
		for _, a := range l.core.Agents() {
			reply.Agents = append(reply.Agents, agentProto(a, l.agents[a.Name], now))
		}
		for _, w := range l.core.Workers() {
			w.Rate = d.s.meter.rate(&w, time.Now())
			reply.Workers = append(reply.Workers, workerProto(w))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	reply.Checkpoint, reply.InMemory = d.s.checkpoint(cuts), d.s.inMemory(cuts)
	reply.Datasets, err = d.all(ctx)
	return reply, err
}

// look is a view whose function may fail.
func (d *datasets) look(ctx context.Context, f func(*loop) error) error {
	return callStatus(d.s.do(ctx, &call{view: true, f: f}))
}

// Reclaim takes back what the process of a rank holds, or says what that would do.
func (d *datasets) Reclaim(ctx context.Context, req *headracev1.ReclaimRequest) (*headracev1.ReclaimReply, error) {
	if req.Job != d.s.cfg.Job {
		return nil, d.s.otherJob(req.Job)
	}
	ev := &shardsvc.Reclaim{Rank: req.Rank, Incarnation: req.Incarnation}
	var plan shardsvc.ReclaimPlan
	do := func(l *loop) error {
		if plan = l.core.PlanReclaim(ev); plan.Refused != "" {
			return statusOf(codes.FailedPrecondition, errors.New(wire.Valid(plan.Refused)), detail{})
		}
		if req.DryRun {
			return nil
		}
		l.step(ev)
		if err := l.rejected(); err != nil {
			return statusOf(codes.FailedPrecondition, err, detail{})
		}
		return nil
	}
	if err := d.s.do(ctx, &call{view: req.DryRun, f: do}); err != nil {
		return nil, callStatus(err)
	}
	return &headracev1.ReclaimReply{Incarnation: plan.Incarnation, Agent: wire.Valid(plan.Agent), Pid: plan.Pid, Leases: uint32(plan.Leases),
		Step: plan.Step, Kept: plan.Kept, Fenced: plan.Fenced}, nil
}
