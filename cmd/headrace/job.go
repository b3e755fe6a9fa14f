package main

import (
	"fmt"
	"io"
	"strings"
)

// writeJob draws one snapshot; width 0 is a file or a pipe and clips nothing.
func writeJob(w io.Writer, v *jobView, width int) {
	line := func(format string, args ...any) {
		s := fmt.Sprintf(format, args...)
		if width > 0 {
			s = clip(s, width)
		}
		fmt.Fprintln(w, s)
	}
	line("job %s  %s  %s  up %s  term %d  epoch %d  generation %d", v.Job, v.Model, v.State, uptime(v.UptimeSeconds), v.Term, v.Epoch, v.Generation)
	line("grants %s  acks %s (refused %s)  reclaims %s  steals %s", grouped(int64(v.GrantsTotal)), grouped(int64(v.AcksTotal)),
		grouped(int64(v.AcksRefusedTotal)), grouped(int64(v.ReclaimsTotal)), grouped(int64(v.StealsTotal)))
	if c := v.Checkpoint; c != nil {
		rank := ""
		if c.Rank != nil {
			rank = fmt.Sprintf("  rank %d", *c.Rank)
		}
		line("checkpoint of step %s%s  bound %s ago  kept %d  %s", grouped(c.Step), rank, uptime(c.AgeSeconds), c.Kept, c.Path)
	}
	if v.HTTP != "" {
		line("http://%s/metrics", v.HTTP)
	}
	section := func(t *table) {
		if len(t.rows) == 1 {
			return
		}
		fmt.Fprintln(w)
		var b strings.Builder
		t.write(&b)
		for s := range strings.Lines(b.String()) {
			line("%s", strings.TrimRight(s, "\n"))
		}
	}
	section(progressTable(v.Datasets))
	section(distanceTable(v.Datasets))
	section(agentTable(v.Agents))
	section(workerTable(v))
	if len(v.Datasets) == 0 {
		line("\nno datasets; make one with `headrace dataset apply -f FILE`")
	}
}

func progressTable(all []datasetView) *table {
	t := newTable("DATASET", "STATE", "PASS", "", "PROGRESS", "SETTLED>", "OF>", "KEPT FOR>")
	for _, d := range all {
		state := d.State
		if d.Reason != "" && d.State != "running" {
			state += " (" + clip(d.Reason, 40) + ")"
		}
		t.row(d.Name, state, d.passText(), bar(d.Counts.Settled, d.Counts.Listed, 12), percent(d.Counts.Settled, d.Counts.Listed),
			amount(d.Counts.Settled, d.Unit), amount(d.Counts.Listed, d.Unit), d.Retention.text())
	}
	return t
}

// distanceTable: how far behind the end of what is listed each stage is.
func distanceTable(all []datasetView) *table {
	t := newTable("TO HEAD", "ACKED>", "LEASED>", "PLANNED>", "EXCLUDED>")
	for _, d := range all {
		c := d.Counts
		t.row(d.Name, amount(c.Listed-c.Settled, d.Unit), amount(c.Listed-c.Settled-c.Leased, d.Unit), amount(c.Listed-c.Planned, d.Unit), amount(c.Excluded, d.Unit))
	}
	return t
}

func agentTable(all []agentView) *table {
	t := newTable("AGENT", "SESSION", "HEARD>", "WORKERS>", "HOST", "PID>", "GPUS")
	for _, g := range all {
		t.row(g.Name, g.Session, ago(g.LastHeardSeconds), fmt.Sprint(g.Workers), g.Host, fmt.Sprint(g.PID), fmt.Sprint(len(g.GPUs)))
	}
	return t
}

func workerTable(v *jobView) *table {
	var total uint64
	for _, w := range v.Workers {
		total += w.UnitsAcked
	}
	unit := "records"
	if len(v.Datasets) > 0 {
		unit = v.Datasets[0].Unit
	}
	t := newTable("RANK>", "STATE", "RATE>", "SHARE>", "STEP>", "WAIT/STEP>", "LEASES>", "AGENT", "PID>")
	for _, w := range v.Workers {
		t.row(fmt.Sprint(w.Rank), w.State, amount(int64(w.Rate), unit)+"/s", percent(int64(w.UnitsAcked), int64(total)), grouped(w.Step),
			fmt.Sprintf("%.1f/%.1fs", w.WaitSeconds, w.StepSeconds), fmt.Sprint(w.Leases), w.Agent, fmt.Sprint(w.PID))
	}
	return t
}
