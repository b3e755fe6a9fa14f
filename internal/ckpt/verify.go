package ckpt

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/terminal"
)

// Verified is what a verification found.
type Verified struct {
	Path     string  `json:"path"`
	Step     int64   `json:"step"`
	Verifies bool    `json:"verifies"`
	State    string  `json:"state"` // as in ckpt list
	Reason   string  `json:"reason"`
	Files    int     `json:"files"`
	Bytes    int64   `json:"bytes"`
	Faults   []Fault `json:"faults"`
}

type Fault struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// Watch is called before a checkpoint is verified. It returns where progress is told,
// or nil, and what is called at the end.
type Watch func(path string) (progress func(manifest.Progress), done func())

// Verify reads all checkpoints that paths mean and compares their files with their
// manifests.
func Verify(ctx context.Context, on On, paths []string, how manifest.Verifying, w Watch) ([]Verified, error) {
	views := []Verified{}
	for _, path := range paths {
		all, err := Find(on, path)
		if err != nil {
			return nil, err
		}
		for i := range all {
			v, err := verifyOne(ctx, on, &all[i], how, w)
			if err != nil {
				return nil, err
			}
			views = append(views, v)
		}
	}
	return views, nil
}

// WriteVerified prints what a verification found.
func WriteVerified(w io.Writer, views []Verified) {
	for _, v := range views {
		switch {
		case v.Verifies:
			fmt.Fprintf(w, "%s: verifies: step %d, %d files, %s\n", v.Path, v.Step, v.Files, terminal.Amount(v.Bytes, "bytes"))
		case v.State != "whole":
			fmt.Fprintf(w, "%s: %s\n", v.Path, v.Reason)
		default:
			fmt.Fprintf(w, "%s: does not verify: step %d, %d of %d files\n", v.Path, v.Step, len(v.Faults), v.Files)
			for _, f := range v.Faults {
				fmt.Fprintf(w, "    %s: %s\n", f.Path, f.Reason)
			}
		}
	}
	if len(views) == 0 {
		fmt.Fprintln(w, "no checkpoints")
	}
}

// AllVerify says how many of views do not verify; nil: all do. A half checkpoint is no
// failure, because a save may be going on.
func AllVerify(views []Verified) error {
	bad := 0
	for _, v := range views {
		if !v.Verifies && v.State != "half" {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d checkpoints do not verify", bad, len(views))
	}
	return nil
}

func verifyOne(ctx context.Context, on On, c *manifest.Checkpoint, how manifest.Verifying, w Watch) (Verified, error) {
	k := ViewOf(c, nil)
	v := Verified{Path: k.Path, Step: k.Step, State: k.State, Reason: k.Reason, Files: k.Files, Bytes: k.Bytes, Faults: []Fault{}}
	if c.Err != nil {
		return v, nil
	}
	done := func() {}
	how.On = on(c.Path)
	if w != nil {
		how.Progress, done = w(k.Path)
	}
	faults, err := manifest.Verify(ctx, c.Folder(), c.Manifest, how)
	done()
	if err != nil {
		return v, err
	}
	for _, f := range faults {
		v.Faults = append(v.Faults, Fault{f.Path, f.Err.Error()})
	}
	how.Progress = nil // it was told of this one
	needs, err := verifyNeeds(ctx, c, how)
	if err != nil {
		return v, err
	}
	v.Faults = append(v.Faults, needs...)
	v.Verifies = len(v.Faults) == 0
	return v, nil
}

// Verifies says why a checkpoint does not verify; nil: it does.
func Verifies(ctx context.Context, on On, c *manifest.Checkpoint, w Watch) error {
	v, err := verifyOne(ctx, on, c, manifest.Verifying{}, w)
	switch {
	case err != nil:
		return err
	case v.State != "whole":
		return errors.New(v.Reason)
	case !v.Verifies:
		return fmt.Errorf("%s: %s", v.Faults[0].Path, v.Faults[0].Reason)
	}
	return nil
}
