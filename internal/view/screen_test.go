package view

import (
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/terminal"
)

func TestTopFitsAnyTerminal(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {40, 10}, {20, 3}, {1, 1}} {
		s := &Screen{}
		s.Update(sample())
		for range 9 {
			s.event("something happened that is longer than the narrowest terminal is wide")
		}
		s.Lost("no master answers at 127.0.0.1:7070")
		var b strings.Builder
		s.Paint(&b, size[0], size[1])
		text := strings.NewReplacer(terminal.Home, "", terminal.ClearLine, "", terminal.ClearBelow, "").Replace(b.String())
		lines := strings.Split(text, "\r\n")
		if len(lines) > size[1] {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, l := range lines {
			if n := len([]rune(l)); n > max(size[0], 3) {
				t.Errorf("%v: %d columns: %s", size, n, l)
			}
		}
	}
}

func TestTopTellsWhatChanged(t *testing.T) {
	s := &Screen{}
	s.Update(sample())
	next := sample()
	next.Workers = next.Workers[1:]
	next.Agents[1].Session = "live"
	next.Datasets[1].State = "running"
	next.ReclaimsTotal += 2
	s.Update(next)
	all := strings.Join(s.events, "\n")
	for _, want := range []string{"agent node-2 is live", "rank 0 left (pid 11 on node-1)", "dataset users is running", "2 leases taken back"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not shown:\n%s", want, all)
		}
	}
	s.Lost("gone")
	s.Lost("gone")
	s.Update(next)
	if n := strings.Count(strings.Join(s.events, "\n"), "gone"); n != 1 || !strings.Contains(strings.Join(s.events, "\n"), "the master is back") {
		t.Error(s.events)
	}
}
