package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/terminal"
)

// Screen has the newest snapshot and the changes between snapshots.
type Screen struct {
	now     Job
	seen    bool
	trouble string
	events  []string
}

const keptEvents = 5

func (s *Screen) event(format string, args ...any) {
	s.events = append(s.events, time.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...))
	s.events = s.events[max(0, len(s.events)-keptEvents):]
}

func (s *Screen) Lost(why string) {
	if s.trouble == "" {
		s.event("%s", why)
	}
	s.trouble = why
}

func (s *Screen) Update(v Job) {
	if s.seen {
		if s.trouble != "" {
			s.event("the master is back, term %d", v.Term)
		}
		s.compare(v)
	}
	s.now, s.seen, s.trouble = v, true, ""
}

func (s *Screen) compare(v Job) {
	for _, g := range v.Agents {
		i := slices.IndexFunc(s.now.Agents, func(o Agent) bool { return o.Name == g.Name })
		switch {
		case i < 0:
			s.event("agent %s came", g.Name)
		case s.now.Agents[i].Session != g.Session:
			s.event("agent %s is %s", g.Name, g.Session)
		}
	}
	for _, w := range v.Workers {
		i := slices.IndexFunc(s.now.Workers, func(o Worker) bool { return o.Rank == w.Rank && o.Incarnation == w.Incarnation })
		switch {
		case i < 0:
			s.event("rank %d came (pid %d on %s)", w.Rank, w.PID, w.Agent)
		case s.now.Workers[i].State != w.State && !(quiet[w.State] && quiet[s.now.Workers[i].State]):
			s.event("rank %d is %s", w.Rank, w.State)
		}
	}
	for _, w := range s.now.Workers {
		if !slices.ContainsFunc(v.Workers, func(o Worker) bool { return o.Rank == w.Rank && o.Incarnation == w.Incarnation }) {
			s.event("rank %d left (pid %d on %s)", w.Rank, w.PID, w.Agent)
		}
	}
	for _, d := range v.Datasets {
		i := slices.IndexFunc(s.now.Datasets, func(o Dataset) bool { return o.Name == d.Name })
		if i >= 0 && s.now.Datasets[i].State != d.State {
			s.event("dataset %s is %s %s", d.Name, d.State, d.Reason)
		}
		switch {
		case i < 0:
		case d.Silence != nil && s.now.Datasets[i].Silence == nil:
			s.event("dataset %s: %s", d.Name, d.Silence.sentence())
		case d.Silence == nil && s.now.Datasets[i].Silence != nil:
			s.event("dataset %s: the source answers again", d.Name)
		}
	}
	if n := v.ReclaimsTotal - s.now.ReclaimsTotal; v.ReclaimsTotal > s.now.ReclaimsTotal && v.Term == s.now.Term {
		s.event("%d leases taken back", n)
	}
}

// quiet states come and go with every batch.
var quiet = map[string]bool{"running": true, "waiting": true}

// Paint fits the snapshot into the terminal; the newest events keep the bottom.
func (s *Screen) Paint(w io.Writer, width, height int) {
	var b strings.Builder
	if s.seen {
		s.now.Write(&b, width)
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
