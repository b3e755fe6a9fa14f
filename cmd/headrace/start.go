package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/ckpt"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/internal/view"
)

// atStart is what up and run do with datasets before trainers can come.
type atStart struct {
	docs         []dataset.Document // of -f
	resumeFailed bool
	fresh        bool // their progress is forgotten first
}

func resumeFlag(cmd *cobra.Command, resume *bool) {
	cmd.Flags().BoolVar(resume, "resume-failed", false, "go on with the datasets of -f that have failed, once the cause is removed")
}

// applyAtStart applies -f, and tells the user of a second run what was there before. A
// dataset that has failed goes on if the user asks, or if its spec changes in a field that
// says what to do with the records that stopped it. run's master ends with its trainers, so
// the user may have no other moment for `headrace resume`.
func (a *app) applyAtStart(ctx context.Context, c *client, at atStart) error {
	for _, d := range at.docs {
		was, err := describe(ctx, c, d.Spec.Name)
		if err != nil {
			return err
		}
		if was != nil && at.fresh {
			if err := a.forget(ctx, c, was); err != nil {
				return err
			}
			was = nil
		}
		if _, err := applyAll(ctx, c, []dataset.Document{d}, false); err != nil {
			return err
		}
		if was != nil && was.State == "failed" {
			if err := a.resumeMended(ctx, c, was, d.Spec, at.resumeFailed); err != nil {
				return err
			}
		}
		if was == nil {
			continue // nothing was there before
		}
		now, err := describe(ctx, c, d.Spec.Name)
		if err != nil || now == nil {
			return err
		}
		v := view.DatasetOf(now)
		again := false
		if v.Counts.Settled > 0 {
			if again, err = nothingKept(ctx, c); err != nil {
				return err
			}
		}
		if line := v.AtStart(again); line != "" {
			a.say("%s", line)
		}
	}
	return nil
}

// nothingKept asks whether a trainer that starts now begins with an untrained model.
func nothingKept(ctx context.Context, c *client) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := c.cuts().Cuts(ctx, &headracev1.CutsRequest{})
	if err != nil {
		return false, advice.FromMaster(err, c.target)
	}
	return ckpt.NothingKept(reply), nil
}

// forget deletes a dataset, for a run that starts from the beginning.
func (a *app) forget(ctx context.Context, c *client, was *headracev1.Dataset) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := c.Delete(ctx, &headracev1.DeleteRequest{Name: was.Name}); err != nil {
		return advice.FromMaster(err, c.target)
	}
	v := view.DatasetOf(was)
	a.say("dataset %s starts from the beginning: its progress is forgotten (%s settled)", was.Name, terminal.Amount(v.Counts.Settled, v.Unit))
	return nil
}

// resumeMended goes on with a failed dataset if the new spec repairs it, or if asked.
func (a *app) resumeMended(ctx context.Context, c *client, was *headracev1.Dataset, spec *dataset.Spec, asked bool) error {
	why := "--resume-failed"
	if !asked {
		fields := dataset.Repaired(was.Yaml, spec)
		if len(fields) == 0 {
			return nil
		}
		why = "its spec has changed, " + strings.Join(fields, ", ")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := c.Resume(ctx, &headracev1.ResumeRequest{Name: was.Name}); err != nil {
		return advice.FromMaster(err, c.target)
	}
	a.say("dataset %s had failed: %s", was.Name, was.Reason)
	a.say("it is resumed (%s)", why)
	return nil
}

// describe asks for one dataset; nil: there is none of that name.
func describe(ctx context.Context, c *client, name string) (*headracev1.Dataset, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	d, err := c.Describe(ctx, &headracev1.DescribeRequest{Name: name})
	if status.Code(err) == codes.NotFound {
		return nil, nil
	}
	return d, advice.FromMaster(err, c.target)
}
