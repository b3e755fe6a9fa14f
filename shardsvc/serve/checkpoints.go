package serve

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/wire"
	"github.com/headrace/headrace/sources"
	"google.golang.org/grpc/codes"
)

// checkpoints is the Checkpoints service.
type checkpoints struct {
	headracev1.UnimplementedCheckpointsServer
	s *Server
}

func (c *checkpoints) Cuts(ctx context.Context, _ *headracev1.CutsRequest) (*headracev1.CutsReply, error) {
	var (
		all []shardsvc.CutInfo
		job shardsvc.JobInfo
	)
	if err := c.s.view(ctx, func(l *loop) { all, job = l.core.Cuts(), l.core.Job() }); err != nil {
		return nil, callStatus(err)
	}
	reply := &headracev1.CutsReply{Job: job.Job, Model: c.s.cfg.Model, Epoch: job.Epoch}
	is := newest(all, shardsvc.CutBound)
	for i := range all {
		k := c.state(&all[i], is[all[i].ID])
		var err error
		if k.Gone, err = c.s.goneOf(ctx, &all[i]); err != nil {
			return nil, callStatus(err)
		}
		reply.Cuts = append(reply.Cuts, k)
	}
	slices.Reverse(reply.Cuts)
	return reply, nil
}

func (c *checkpoints) state(k *shardsvc.CutInfo, newest bool) *headracev1.CutState {
	out := &headracev1.CutState{Cut: k.ID, State: k.State.String(), Epoch: k.Epoch, Generation: k.Generation, Rank: k.Rank, Step: k.Step,
		Path: wire.Valid(k.Path), Newest: newest,
		Units: &headracev1.CutUnits{Acked: k.Units.Acked, Excluded: k.Units.Excluded, Dropped: k.Units.Dropped}}
	if k.State != shardsvc.CutVoided {
		out.Records = wire.TallyOf(&k.Records)
	}
	if k.State == shardsvc.CutBound || k.State == shardsvc.CutMemory {
		out.AgeSeconds = c.s.age(k).Seconds()
	}
	return out
}

func (c *checkpoints) Show(ctx context.Context, req *headracev1.ShowCutRequest) (*headracev1.ShowCutReply, error) {
	var (
		info  shardsvc.CutInfo
		is    bool
		found bool
		body  *cut.Cut
	)
	err := c.s.view(ctx, func(l *loop) {
		all := l.core.Cuts()
		i := slices.IndexFunc(all, func(k shardsvc.CutInfo) bool { return k.ID == req.Cut })
		if found = i >= 0; found {
			info, is = all[i], newest(all, shardsvc.CutBound)[req.Cut]
			body, _ = l.core.CutBody(req.Cut)
		}
	})
	switch {
	case err != nil:
		return nil, callStatus(err)
	case !found:
		return nil, statusOf(codes.NotFound, fmt.Errorf("no checkpoint with cut %v is kept", cut.ID(req.Cut)), detail{Hint: "`headrace ckpt list` shows those that are kept"})
	}
	reply := &headracev1.ShowCutReply{Cut: c.state(&info, is)}
	if reply.Cut.Gone, err = c.s.goneOf(ctx, &info); err != nil {
		return nil, callStatus(err)
	}
	if body != nil { // a voided one has none
		if reply.Body, err = c.s.bodies.of(body); err != nil {
			return nil, callStatus(err)
		}
	}
	return reply, nil
}

func (c *checkpoints) Bind(ctx context.Context, req *headracev1.BindCutRequest) (*headracev1.BindCutReply, error) {
	if err := absolute(req.Path); err != nil {
		return nil, err
	}
	return &headracev1.BindCutReply{}, c.change(ctx, &shardsvc.BindCut{Cut: req.Cut, Path: req.Path})
}

func (c *checkpoints) Drop(ctx context.Context, req *headracev1.DropCutRequest) (*headracev1.DropCutReply, error) {
	reply := &headracev1.DropCutReply{}
	err := c.s.view(ctx, func(l *loop) { _, reply.Kept = l.core.CutBody(req.Cut) })
	if err != nil {
		return nil, callStatus(err)
	}
	return reply, c.change(ctx, &shardsvc.DropCut{Cut: req.Cut, Reason: req.Reason})
}

// change steps one event that the core may reject.
func (c *checkpoints) change(ctx context.Context, ev shardsvc.Event) error {
	return callStatus(c.s.change(ctx, func(l *loop) error {
		l.step(ev)
		if err := l.rejected(); err != nil {
			return statusOf(codes.FailedPrecondition, err, detail{})
		}
		return nil
	}))
}

// Rewind plans a rewind and, unless it is a dry run, does it.
func (c *checkpoints) Rewind(ctx context.Context, req *headracev1.RewindRequest) (*headracev1.RewindReply, error) {
	if req.Job != c.s.cfg.Job {
		return nil, c.s.otherJob(req.Job)
	}
	cut, err := c.rewindTo(req)
	if err != nil {
		return nil, err
	}
	var (
		plan    shardsvc.RewindPlan
		epoch   uint32
		gone    *headracev1.Gone
		deleted []Deletion
		refused error
		hint    string
	)
	do := func(l *loop) error {
		deleted = c.s.deleted() // on the loop: a deletion that is noted before somebody asks for marks counts for each rewind after that
		if plan = l.core.PlanRewind(cut, deleted); plan.Refused != "" {
			return statusOf(codes.FailedPrecondition, errors.New(plan.Refused), detail{})
		}
		gone = l.goneProto(plan.Gone)
		if plan.Gone.Stops {
			if hint, refused = l.notRewindable(cut, &plan.Gone, deleted); !req.DryRun {
				return statusOf(codes.FailedPrecondition, refused, detail{Hint: hint})
			}
		}
		if !req.DryRun {
			l.step(&shardsvc.Rewind{Cut: cut, Path: req.Path, After: req.After})
			if err := l.rejected(); err != nil {
				return statusOf(codes.FailedPrecondition, err, detail{})
			}
		}
		epoch = l.core.Job().Epoch
		return nil
	}
	if err := c.s.do(ctx, &call{view: req.DryRun, f: do}); err != nil {
		return nil, callStatus(err)
	}
	reply := &headracev1.RewindReply{Epoch: epoch, Fenced: plan.Fenced, Gone: gone}
	for _, a := range plan.Again {
		unit := a.Unit
		reply.Again = append(reply.Again, &headracev1.AgainUnits{Dataset: a.Name, Partition: wire.Valid(a.Label), Pass: a.Pass, Units: sources.InUnits(unit, a.Units), Unit: unit})
	}
	if refused != nil {
		reply.Refused, reply.Hint = wire.Valid(refused.Error()), wire.Valid(hint)
	}
	if len(plan.Again) > 0 {
		reply.Records = wire.TallyOf(&plan.Records)
	}
	for i := range plan.Voided {
		reply.Voided = append(reply.Voided, c.state(&plan.Voided[i], false))
	}
	if !req.DryRun && c.s.cfg.Moved != nil {
		if err := c.s.cfg.Moved(ctx); err != nil {
			reply.Untold = wire.Valid(err.Error())
		}
	}
	return reply, nil
}

// otherJob is the error for a call that names another job than this master's.
func (s *Server) otherJob(named string) error {
	return statusOf(codes.FailedPrecondition, fmt.Errorf("this master runs job %q, not %q", s.cfg.Job, named),
		detail{Field: "job", Hint: "name this master's job, or give the address of the other job's master with --master"})
}

func (c *checkpoints) rewindTo(req *headracev1.RewindRequest) (*cut.Cut, error) {
	if len(req.Body) == 0 {
		return nil, nil // the start
	}
	if err := absolute(req.Path); err != nil {
		return nil, err
	}
	to, err := cut.ParseJSON(req.Body)
	if err != nil {
		return nil, statusOf(codes.InvalidArgument, fmt.Errorf("the checkpoint's cut cannot be read: %w", err), detail{Field: "body"})
	}
	if err := to.Of(c.s.cfg.Job, c.s.cfg.Model); err != nil {
		return nil, statusOf(codes.FailedPrecondition, err, detail{Field: "body"})
	}
	return to, nil
}

// absolute refuses a relative path: the master and its trainers may have different working
// directories. s3://bucket/... means the same everywhere.
func absolute(path string) error {
	if filepath.IsAbs(path) || strings.HasPrefix(path, "s3://") {
		return nil
	}
	return statusOf(codes.InvalidArgument, fmt.Errorf("path %q: must be absolute", path), detail{Field: "path"})
}

// checkpoint returns the newest bound cut, for status. For private, each rank has a newest
// cut; it returns the oldest of these.
func (s *Server) checkpoint(all []shardsvc.CutInfo) *headracev1.NewestCheckpoint {
	return s.newestOf(all, shardsvc.CutBound, shardsvc.CutCarried)
}

// inMemory is checkpoint for the cuts whose checkpoint lies in memory only.
func (s *Server) inMemory(all []shardsvc.CutInfo) *headracev1.NewestCheckpoint {
	return s.newestOf(all, shardsvc.CutMemory)
}

// newestOf gives the newest cut in state, and how many cuts are in state or in one of also.
func (s *Server) newestOf(all []shardsvc.CutInfo, state shardsvc.CutState, also ...shardsvc.CutState) *headracev1.NewestCheckpoint {
	is, kept := newest(all, state), uint32(0)
	var out *headracev1.NewestCheckpoint
	for i := range all {
		k := &all[i]
		if k.State == state || slices.Contains(also, k.State) {
			kept++
		}
		if is[k.ID] && out == nil { // in order
			out = &headracev1.NewestCheckpoint{Cut: k.ID, Step: k.Step, Rank: k.Rank, Epoch: k.Epoch, Path: wire.Valid(k.Path), AgeSeconds: s.age(k).Seconds()}
		}
	}
	if out != nil {
		out.Kept = kept
	}
	return out
}

// age of a cut that is bound, or lies in memory, as far as is known.
func (s *Server) age(k *shardsvc.CutInfo) time.Duration {
	if k.State == shardsvc.CutBound {
		return s.boundAge(k)
	}
	age, _ := s.bindings.age(k.ID) // after a master's restart nobody knows
	return age
}
