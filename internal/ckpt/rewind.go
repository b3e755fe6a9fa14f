package ckpt

import (
	"context"
	"errors"
	"fmt"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Rewinding goes back to a checkpoint, or says what that would do.
type Rewinding struct {
	To         string // a manifest, a checkpoint's folder, a cut of the master, or "start"
	DryRun     bool   // change nothing
	Unverified bool   // do not read the checkpoint's files first
	On         On     // where checkpoints lie

	Verify  func(context.Context, *manifest.Checkpoint) error // nil: it verifies
	Confirm func(planned *Rewound) error                      // asked before anything changes
	Ask     time.Duration                                     // how long one question to the master may take
}

// Run asks the master what going back would do, asks the user, and goes back. Errors of
// calls are gRPC's.
func (r *Rewinding) Run(ctx context.Context, c headracev1.CheckpointsClient, job string) (*Rewound, error) {
	req, step, err := r.request(ctx, c, job)
	if err != nil {
		return nil, err
	}
	req.DryRun = true
	ask := func() (*Rewound, error) {
		ctx, cancel := context.WithTimeout(ctx, 4*r.Ask) // the master waits for brokers
		defer cancel()
		reply, err := c.Rewind(ctx, req)
		if err != nil {
			return nil, err
		}
		return rewoundOf(reply, job, r.To, step), nil
	}
	v, err := ask()
	if err != nil {
		return nil, err
	}
	if v.DryRun = r.DryRun; v.DryRun {
		return v, nil
	}
	if v.Refused != "" {
		return nil, advice.Failed.Wrap(v.Hint, errors.New(v.Refused))
	}
	if err := r.Confirm(v); err != nil {
		return nil, err
	}
	// Brokers are told of this checkpoint: it must not vanish in a power failure.
	if req.Path != "" && !r.Unverified {
		if err := manifest.Stays(r.On(req.Path), req.Path); err != nil {
			return nil, err
		}
	}
	req.DryRun = false
	if v, err = ask(); err != nil {
		return nil, err
	}
	v.Rewound = true
	return v, nil
}

// request is the call that To means.
func (r *Rewinding) request(ctx context.Context, c headracev1.CheckpointsClient, job string) (req *headracev1.RewindRequest, step int64, err error) {
	if r.To == "start" {
		return &headracev1.RewindRequest{Job: job}, 0, nil
	}
	path := r.To
	if id, err := cut.ParseID(r.To); err == nil {
		ctx, cancel := context.WithTimeout(ctx, r.Ask)
		defer cancel()
		kept, err := c.Show(ctx, &headracev1.ShowCutRequest{Cut: uint64(id)})
		if err != nil {
			return nil, 0, err
		}
		if len(kept.Body) == 0 {
			return nil, 0, fmt.Errorf("checkpoint %v is %s: the job cannot go back to it", id, kept.Cut.State)
		}
		if kept.Cut.State == "carried" || kept.Cut.State == "bound" && r.Unverified {
			return &headracev1.RewindRequest{Job: job, Body: kept.Body, Path: kept.Cut.Path}, kept.Cut.Step, nil
		}
		path = kept.Cut.Path // a frozen cut says nothing of its checkpoint: look at the files
	}
	target, err := Exactly(r.On, path)
	switch {
	case err != nil:
		return nil, 0, err
	case target.Err != nil:
		return nil, 0, fmt.Errorf("%s: %w", target.Path, target.Err)
	case target.Manifest.Job != job:
		return nil, 0, advice.Usage.Errorf("a checkpoint takes back only its own job", "%s is of job %s, not %s", target.Path, target.Manifest.Job, job)
	}
	if !r.Unverified {
		if err := r.Verify(ctx, target); err != nil {
			return nil, 0, advice.Failed.Errorf("`headrace ckpt verify` shows all; --no-verify goes back to it all the same", "%s does not verify: %w", target.Path, err)
		}
	}
	body, err := target.Manifest.Cut.EncodeJSON()
	if err != nil {
		return nil, 0, err
	}
	return &headracev1.RewindRequest{Job: job, Body: body, Path: target.Path, After: manifest.HighestOrder(r.On(target.Path), target)}, target.Manifest.Step, nil
}
