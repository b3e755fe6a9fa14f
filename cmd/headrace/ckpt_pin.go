package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/ckpt"
)

type pinnedView struct {
	Path   string `json:"path"`
	Pinned bool   `json:"pinned"`
	Reason string `json:"reason"`
}

func (a *app) ckptPinCommand() *cobra.Command {
	reason := ""
	cmd := &cobra.Command{
		Use:   "pin CKPT",
		Short: "Pin a checkpoint: nothing of Headrace removes it",
		Long: `Pins a checkpoint: nothing of Headrace's removes it until it is unpinned, with or
without a master. The pin is a file beside the manifest. A checkpoint whose removal has begun
cannot be pinned.`,
		Args: cobra.ExactArgs(1),
		RunE: a.pinning(func(on manifest.FS, path string) error {
			return manifest.SetPin(on, path, manifest.Pin{Pinned: time.Now().UTC().Truncate(time.Second), Reason: reason})
		}, func() pinnedView { return pinnedView{Pinned: true, Reason: reason} }),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why it is pinned, for people who find it")
	return cmd
}

func (a *app) ckptUnpinCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unpin CKPT",
		Short: "Let a pinned checkpoint be removed like others",
		Args:  cobra.ExactArgs(1),
		RunE: a.pinning(manifest.Unpin,
			func() pinnedView { return pinnedView{} }),
	}
}

func (a *app) pinning(do func(on manifest.FS, path string) error, view func() pinnedView) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.load(cmd, nil); err != nil {
			return err
		}
		on := a.checkpointsOn(cmd.Context())
		c, err := ckpt.Exactly(on, args[0])
		if err != nil {
			return err
		}
		if errors.Is(c.Err, manifest.ErrHalf) {
			return fmt.Errorf("%s: %w", c.Folder(), c.Err)
		}
		if err := do(on(c.Path), c.Path); errors.Is(err, manifest.ErrRemoved) {
			hint := "pin another one. If what began to remove it was killed, remove " + manifest.RemovalPath(c.Path) + " and pin it again; the master may refuse to go back to it"
			return advice.NotFound.Wrap(hint, fmt.Errorf("%s cannot be pinned: %w", c.Folder(), err))
		} else if err != nil {
			return err
		}
		v := view()
		v.Path = c.Path
		return a.show(v, func(w io.Writer) {
			word := "is not pinned any more"
			if v.Pinned {
				word = "is pinned"
			}
			fmt.Fprintf(w, "%s %s\n", c.Path, word)
		})
	}
}
