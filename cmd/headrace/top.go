package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/internal/view"
)

func (a *app) topCommand() *cobra.Command {
	every := time.Second
	once := false
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Agents, workers and datasets, live",
		Long: `Repaints the job every second until interrupted: datasets with their progress
and distances, agents, workers with rate and share, and what changed last.
Without a terminal, or with -o json, it prints one snapshot.`,
		Args: cobra.NoArgs,
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, _ []string) error {
			out, ok := a.out.(*os.File)
			if once || !ok || a.cfg.Output != "table" || !term.IsTerminal(int(out.Fd())) {
				return a.jobStatus(cmd.Context(), c)
			}
			return a.live(cmd.Context(), c, out, every)
		}),
	}
	cmd.Flags().DurationVar(&every, "every", every, "time between repaints")
	cmd.Flags().BoolVar(&once, "once", false, "one snapshot")
	return cmd
}

// live repaints until ctx ends. It says when the master is gone, and finds it again when
// it is back.
func (a *app) live(ctx context.Context, c *client, out *os.File, every time.Duration) error {
	fmt.Fprint(out, terminal.EnterScreen)
	defer fmt.Fprint(out, terminal.LeaveScreen)
	tick := time.NewTicker(max(every, 100*time.Millisecond))
	defer tick.Stop()
	s := &view.Screen{}
	for {
		ask, cancel := context.WithTimeout(ctx, 2*time.Second)
		v, err := a.job(ask, c)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.Lost(advice.FromMaster(err, c.target).Error())
		} else {
			s.Update(v)
		}
		width, height, sizeErr := term.GetSize(int(out.Fd()))
		if sizeErr != nil || width == 0 || height == 0 { // a serial line, for example, has no size
			width, height = 80, 24
		}
		s.Paint(out, width, height)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
