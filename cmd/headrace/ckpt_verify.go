package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/terminal"
)

func (a *app) ckptVerifyCommand() *cobra.Command {
	sizes, workers := false, 0
	cmd := &cobra.Command{
		Use:   "verify PATH...",
		Short: "Read checkpoints and compare every file with its manifest",
		Long: `Reads the files of checkpoints and compares size and checksum (CRC-64/NVME)
with what the manifests say. It exits with 1 when one does not verify; half ones
(no manifest) are shown and are no failure, because a save may be going on.`,
		Example: `  headrace ckpt verify ckpt/                      all of a folder
  headrace ckpt verify ckpt/step-0000000130-9f3c00000000abcd
  headrace ckpt verify ckpt/ --sizes              sizes only: fast`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.load(cmd, nil); err != nil {
				return err
			}
			return a.verify(cmd.Context(), args, manifest.Verifying{Sizes: sizes, Workers: workers})
		},
	}
	cmd.Flags().BoolVar(&sizes, "sizes", false, "compare sizes only, and read nothing")
	cmd.Flags().IntVar(&workers, "workers", 0, "files read at a time (default: one per processor, at most 8)")
	return cmd
}

type verifiedView struct {
	Path     string      `json:"path"`
	Step     int64       `json:"step"`
	Verifies bool        `json:"verifies"`
	State    string      `json:"state"` // as in ckpt list
	Reason   string      `json:"reason"`
	Files    int         `json:"files"`
	Bytes    int64       `json:"bytes"`
	Faults   []faultView `json:"faults"`
}

type faultView struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

func (a *app) verify(ctx context.Context, paths []string, how manifest.Verifying) error {
	views, bad := []verifiedView{}, 0
	for _, path := range paths {
		all, err := find(path)
		if err != nil {
			return err
		}
		for i := range all {
			v, err := a.verifyOne(ctx, &all[i], how)
			if err != nil {
				return err
			}
			if !v.Verifies && v.State != "half" {
				bad++
			}
			views = append(views, v)
		}
	}
	err := a.show(views, func(w io.Writer) {
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
	})
	if err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d checkpoints do not verify", bad, len(views))
	}
	return nil
}

func (a *app) verifyOne(ctx context.Context, c *manifest.Checkpoint, how manifest.Verifying) (verifiedView, error) {
	k := ckptOf(c, nil)
	v := verifiedView{Path: k.Path, Step: k.Step, State: k.State, Reason: k.Reason, Files: k.Files, Bytes: k.Bytes, Faults: []faultView{}}
	if c.Err != nil {
		return v, nil
	}
	done := a.progress(&how, k.Path)
	faults, err := manifest.Verify(ctx, c.Folder(), c.Manifest, how)
	done()
	if err != nil {
		return v, err
	}
	for _, f := range faults {
		v.Faults = append(v.Faults, faultView{f.Path, f.Err.Error()})
	}
	v.Verifies = len(faults) == 0
	return v, nil
}

// verifies says why a checkpoint does not, nil: it does.
func (a *app) verifies(ctx context.Context, c *manifest.Checkpoint) error {
	v, err := a.verifyOne(ctx, c, manifest.Verifying{})
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

// progress shows how far a long verification is, on a terminal.
func (a *app) progress(how *manifest.Verifying, path string) (done func()) {
	out, ok := a.err.(*os.File)
	if !ok || !term.IsTerminal(int(out.Fd())) {
		return func() {}
	}
	var mu sync.Mutex
	last, shown := time.Now(), false
	how.Progress = func(p manifest.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) < 200*time.Millisecond {
			return
		}
		last, shown = time.Now(), true
		fmt.Fprintf(out, "\r%s %s %s of %s", terminal.Clip(path, 40), terminal.Bar(p.Bytes, p.Of, 20), terminal.Amount(p.Bytes, "bytes"), terminal.Amount(p.Of, "bytes"))
	}
	return func() {
		if shown {
			fmt.Fprint(out, "\r"+terminal.ClearLine)
		}
	}
}
