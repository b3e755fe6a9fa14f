package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/terminal"
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

// live repaints until ctx ends. A master that goes away is shown as such, and
// found again when it is back.
func (a *app) live(ctx context.Context, c *client, out *os.File, every time.Duration) error {
	fmt.Fprint(out, terminal.EnterScreen)
	defer fmt.Fprint(out, terminal.LeaveScreen)
	tick := time.NewTicker(max(every, 100*time.Millisecond))
	defer tick.Stop()
	s := &screen{}
	for {
		ask, cancel := context.WithTimeout(ctx, 2*time.Second)
		v, err := a.job(ask, c)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.lost(advice.FromMaster(err, c.target).Error())
		} else {
			s.update(v)
		}
		width, height, sizeErr := term.GetSize(int(out.Fd()))
		if sizeErr != nil {
			width, height = 80, 24
		}
		s.paint(out, width, height)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// screen is the last snapshot and what changed between snapshots.
type screen struct {
	now     jobView
	seen    bool
	trouble string
	events  []string
}

const keptEvents = 5

func (s *screen) event(format string, args ...any) {
	s.events = append(s.events, time.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...))
	s.events = s.events[max(0, len(s.events)-keptEvents):]
}

func (s *screen) lost(why string) {
	if s.trouble == "" {
		s.event("%s", why)
	}
	s.trouble = why
}

func (s *screen) update(v jobView) {
	if s.seen {
		if s.trouble != "" {
			s.event("the master is back, term %d", v.Term)
		}
		s.compare(v)
	}
	s.now, s.seen, s.trouble = v, true, ""
}

func (s *screen) compare(v jobView) {
	for _, g := range v.Agents {
		i := slices.IndexFunc(s.now.Agents, func(o agentView) bool { return o.Name == g.Name })
		switch {
		case i < 0:
			s.event("agent %s came", g.Name)
		case s.now.Agents[i].Session != g.Session:
			s.event("agent %s is %s", g.Name, g.Session)
		}
	}
	for _, w := range v.Workers {
		i := slices.IndexFunc(s.now.Workers, func(o workerView) bool { return o.Rank == w.Rank && o.Incarnation == w.Incarnation })
		switch {
		case i < 0:
			s.event("rank %d came (pid %d on %s)", w.Rank, w.PID, w.Agent)
		case s.now.Workers[i].State != w.State && !(quiet[w.State] && quiet[s.now.Workers[i].State]):
			s.event("rank %d is %s", w.Rank, w.State)
		}
	}
	for _, w := range s.now.Workers {
		if !slices.ContainsFunc(v.Workers, func(o workerView) bool { return o.Rank == w.Rank && o.Incarnation == w.Incarnation }) {
			s.event("rank %d left (pid %d on %s)", w.Rank, w.PID, w.Agent)
		}
	}
	for _, d := range v.Datasets {
		i := slices.IndexFunc(s.now.Datasets, func(o datasetView) bool { return o.Name == d.Name })
		if i >= 0 && s.now.Datasets[i].State != d.State {
			s.event("dataset %s is %s %s", d.Name, d.State, d.Reason)
		}
	}
	if n := v.ReclaimsTotal - s.now.ReclaimsTotal; v.ReclaimsTotal > s.now.ReclaimsTotal && v.Term == s.now.Term {
		s.event("%d leases taken back", n)
	}
}

// quiet states come and go with every batch.
var quiet = map[string]bool{"running": true, "waiting": true}

// paint fits the snapshot into the terminal; the newest events keep the bottom.
func (s *screen) paint(w io.Writer, width, height int) {
	var b strings.Builder
	if s.seen {
		writeJob(&b, &s.now, width)
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	var tail []string
	if s.trouble != "" {
		tail = append(tail, "! "+s.trouble)
	}
	tail = append(tail, s.events...)
	for i := range tail {
		tail[i] = terminal.Clip(tail[i], width)
	}
	if len(tail) > 0 {
		tail = append([]string{""}, tail...)
	}
	room := max(0, height-len(tail))
	if len(lines) > room {
		hidden := len(lines) - room + 1
		lines = append(lines[:max(0, room-1)], terminal.Clip(fmt.Sprintf("... %d more lines: `headrace status`", hidden), width))
	}
	all := append(lines, tail...)
	all = all[:min(len(all), height)]
	fmt.Fprint(w, terminal.Home+strings.Join(all, terminal.ClearLine+"\r\n")+terminal.ClearLine+terminal.ClearBelow)
}
