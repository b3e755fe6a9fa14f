package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/ckpt"
	"github.com/headrace/headrace/internal/terminal"
)

func (a *app) ckptVerifyCommand() *cobra.Command {
	how := manifest.Verifying{}
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
			views, err := ckpt.Verify(cmd.Context(), a.checkpointsOn(cmd.Context()), args, how, a.watch)
			if err != nil {
				return err
			}
			if err := a.show(views, func(w io.Writer) { ckpt.WriteVerified(w, views) }); err != nil {
				return err
			}
			return ckpt.AllVerify(views)
		},
	}
	cmd.Flags().BoolVar(&how.Sizes, "sizes", false, "compare sizes only, and read nothing")
	cmd.Flags().IntVar(&how.Workers, "workers", 0, "files read at a time (default: one per processor, at most 8)")
	return cmd
}

// watch shows on a terminal how far a long verification is.
func (a *app) watch(path string) (progress func(manifest.Progress), done func()) {
	out, ok := a.err.(*os.File)
	if !ok || !term.IsTerminal(int(out.Fd())) {
		return nil, func() {}
	}
	var mu sync.Mutex
	last, shown := time.Now(), false
	progress = func(p manifest.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) < 200*time.Millisecond {
			return
		}
		last, shown = time.Now(), true
		fmt.Fprintf(out, "\r%s %s %s of %s", terminal.Clip(path, 40), terminal.Bar(p.Bytes, p.Of, 20), terminal.Amount(p.Bytes, "bytes"), terminal.Amount(p.Of, "bytes"))
	}
	return progress, func() {
		if shown {
			fmt.Fprint(out, "\r"+terminal.ClearLine)
		}
	}
}
