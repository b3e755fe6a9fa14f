package view

import (
	"strings"
	"testing"
)

// sample is a job of four workers.
func sample() Job {
	return Job{
		Job: "ctr", Model: "shared", State: "running", Term: 2, Epoch: 1, Generation: 1, UptimeSeconds: 83, HTTP: "127.0.0.1:7071",
		Checkpoint:  &Checkpoint{Cut: "9f3c00000000abcd", Step: 1200, Epoch: 1, Path: "/ckpt/step-0000001200-9f3c00000000abcd/headrace-manifest.json", AgeSeconds: 12.4, Kept: 3},
		InMemory:    &Checkpoint{Cut: "9f3c00000000abce", Step: 1203, Epoch: 1, AgeSeconds: 0.8, Kept: 2},
		GrantsTotal: 1200, AcksTotal: 99001, ReclaimsTotal: 3, StealsTotal: 7,
		Agents: []Agent{{Name: "node-1", Host: "h", PID: 7, Session: "live", LastHeardSeconds: 0.4, GPUs: []string{"0: x"}, Workers: 2},
			{Name: "node-2", Host: "h", PID: 8, Session: "lost", LastHeardSeconds: 4}},
		Workers: []Worker{
			{Rank: 0, Incarnation: "a", Agent: "node-1", PID: 11, State: "running", Rate: 3 << 20, UnitsAcked: 300, Step: 1204, Leases: 2, WaitSeconds: 1, StepSeconds: 80},
			{Rank: 1, Incarnation: "b", Agent: "node-1", PID: 12, State: "stalled", Rate: 1 << 10, UnitsAcked: 100, Step: 9, Leases: 1, WaitSeconds: 1.5, StepSeconds: 3},
		},
		Datasets: []Dataset{{Name: "clicks", State: "running", Unit: "bytes", Passes: 2, Pass: 0, Partitions: 1, ListingComplete: true,
			Counts: Counts{Listed: 1 << 30, Planned: 1 << 29, Pending: 0, Leased: 4 << 20, Settled: 1 << 28, Acked: 1 << 28}},
			{Name: "users", State: "failed", Reason: "files:users: u.tsv changed after it was planned", Unit: "bytes", Passes: 1, Counts: Counts{Listed: 100}}},
	}
}

func TestAJobIsDrawnAsATable(t *testing.T) {
	v := sample()
	var b strings.Builder
	v.Write(&b, 0)
	sameAsFile(t, "job.txt", b.String())
}

// An input without an end is never shown as "100 %", but by how far it is behind.
func TestAnInputWithoutAnEndHasNoPercentage(t *testing.T) {
	lag := 2.5
	d := Dataset{Name: "live", State: "running", Unit: "records", Passes: 1, Partitions: 3, Live: true, Counts: Counts{Listed: 1000, Settled: 1000}}
	for _, tc := range []struct {
		settled int64
		lag     *float64
		says    []string
	}{
		{1000, nil, []string{"caught up"}},
		{766, &lag, []string{"234 behind", "2.5s"}},
		{0, nil, []string{"1,000 behind"}},
	} {
		d.Counts.Settled, d.EventLagSeconds = tc.settled, tc.lag
		v := Job{Datasets: []Dataset{d}}
		var b, c, e strings.Builder
		v.Write(&b, 0)
		DatasetTable([]Dataset{d}).Write(&c)
		d.write(&e)
		for _, text := range []string{b.String(), c.String(), e.String()} {
			if strings.Contains(text, "%") || !strings.Contains(text, tc.says[0]) {
				t.Errorf("settled %d of 1,000:\n%s", tc.settled, text)
			}
		}
		for _, text := range []string{b.String(), e.String()} {
			if len(tc.says) > 1 && !strings.Contains(text, tc.says[1]) {
				t.Errorf("the lag is not shown:\n%s", text)
			}
		}
	}
	d.State = "done"
	if got := d.progress(); got != "100.0%" {
		t.Errorf("got %v, want %v", got, "100.0%")
	}
}
