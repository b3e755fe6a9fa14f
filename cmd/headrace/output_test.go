package main

import (
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/terminal"
)

// sample is a job of four workers, as `top` may show it.
func sample() jobView {
	return jobView{
		Job: "ctr", Model: "shared", State: "running", Term: 2, Epoch: 1, Generation: 1, UptimeSeconds: 83, HTTP: "127.0.0.1:7071",
		Checkpoint:  &checkpointView{Cut: "9f3c00000000abcd", Step: 1200, Epoch: 1, Path: "/ckpt/step-0000001200-9f3c00000000abcd/headrace-manifest.json", AgeSeconds: 12.4, Kept: 3},
		GrantsTotal: 1200, AcksTotal: 99001, ReclaimsTotal: 3, StealsTotal: 7,
		Agents: []agentView{{Name: "node-1", Host: "h", PID: 7, Session: "live", LastHeardSeconds: 0.4, GPUs: []string{"0: x"}, Workers: 2},
			{Name: "node-2", Host: "h", PID: 8, Session: "lost", LastHeardSeconds: 4}},
		Workers: []workerView{
			{Rank: 0, Incarnation: "a", Agent: "node-1", PID: 11, State: "running", Rate: 3 << 20, UnitsAcked: 300, Step: 1204, Leases: 2, WaitSeconds: 1, StepSeconds: 80},
			{Rank: 1, Incarnation: "b", Agent: "node-1", PID: 12, State: "stalled", Rate: 1 << 10, UnitsAcked: 100, Step: 9, Leases: 1, WaitSeconds: 1.5, StepSeconds: 3},
		},
		Datasets: []datasetView{{Name: "clicks", State: "running", Unit: "bytes", Passes: 2, Pass: 0, Partitions: 1, ListingComplete: true,
			Counts: countsView{Listed: 1 << 30, Planned: 1 << 29, Pending: 0, Leased: 4 << 20, Settled: 1 << 28, Acked: 1 << 28}},
			{Name: "users", State: "failed", Reason: "files:users: u.tsv changed after it was planned", Unit: "bytes", Passes: 1, Counts: countsView{Listed: 100}}},
	}
}

func TestAJobIsDrawnAsATable(t *testing.T) {
	v := sample()
	var b strings.Builder
	writeJob(&b, &v, 0)
	golden(t, "job.txt", b.String())
}

func TestTopFitsAnyTerminal(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {40, 10}, {20, 3}, {1, 1}} {
		s := &screen{}
		s.update(sample())
		for range 9 {
			s.event("something happened that is longer than the narrowest terminal is wide")
		}
		s.lost("no master answers at 127.0.0.1:7070")
		var b strings.Builder
		s.paint(&b, size[0], size[1])
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
	s := &screen{}
	s.update(sample())
	next := sample()
	next.Workers = next.Workers[1:]
	next.Agents[1].Session = "live"
	next.Datasets[1].State = "running"
	next.ReclaimsTotal += 2
	s.update(next)
	all := strings.Join(s.events, "\n")
	for _, want := range []string{"agent node-2 is live", "rank 0 left (pid 11 on node-1)", "dataset users is running", "2 leases taken back"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not told:\n%s", want, all)
		}
	}
	s.lost("gone")
	s.lost("gone")
	s.update(next)
	if n := strings.Count(strings.Join(s.events, "\n"), "gone"); n != 1 || !strings.Contains(strings.Join(s.events, "\n"), "the master is back") {
		t.Error(s.events)
	}
}
