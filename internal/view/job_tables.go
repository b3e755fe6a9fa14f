package view

import (
	"fmt"
	"io"
	"strings"

	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/sources"
)

// Write draws one snapshot; width 0 is a file or a pipe and clips nothing.
func (v *Job) Write(w io.Writer, width int) {
	line := func(format string, args ...any) {
		s := fmt.Sprintf(format, args...)
		if width > 0 {
			s = terminal.Clip(s, width)
		}
		fmt.Fprintln(w, s)
	}
	line("job %s  %s  %s  up %s  term %d  epoch %d  generation %d", v.Job, v.Model, v.State, terminal.Uptime(v.UptimeSeconds), v.Term, v.Epoch, v.Generation)
	line("grants %s  acks %s (refused %s)  reclaims %s  steals %s", terminal.Grouped(int64(v.GrantsTotal)), terminal.Grouped(int64(v.AcksTotal)),
		terminal.Grouped(int64(v.AcksRefusedTotal)), terminal.Grouped(int64(v.ReclaimsTotal)), terminal.Grouped(int64(v.StealsTotal)))
	if c := v.Checkpoint; c != nil {
		line("checkpoint of step %s%s  bound %s ago  kept %d  %s", terminal.Grouped(c.Step), c.of(), terminal.Uptime(c.AgeSeconds), c.Kept, c.Path)
	}
	if c := v.InMemory; c != nil {
		age := "some time"
		if c.AgeSeconds > 0 {
			age = terminal.Ago(c.AgeSeconds)
		}
		line("in memory only: step %s%s  of %s ago  kept %d", terminal.Grouped(c.Step), c.of(), age, c.Kept)
	}
	if v.HTTP != "" {
		scheme := "http"
		if v.TLS {
			scheme = "https"
		}
		line("%s://%s/metrics", scheme, v.HTTP)
	}
	section := func(t *terminal.Table) {
		if t.Empty() {
			return
		}
		fmt.Fprintln(w)
		var b strings.Builder
		t.Write(&b)
		for s := range strings.Lines(b.String()) {
			line("%s", strings.TrimRight(s, "\n"))
		}
	}
	section(progressTable(v.Datasets))
	for _, d := range v.Datasets {
		if d.Silence != nil {
			line("! %s: %s", d.Name, d.Silence.sentence())
		}
		if d.Imbalance != nil {
			line("! %s: %s", d.Name, d.Imbalance.sentence())
		}
	}
	section(distanceTable(v.Datasets))
	section(agentTable(v.Agents))
	section(workerTable(v))
	if len(v.Datasets) == 0 {
		line("\nno datasets; make one with `headrace dataset apply -f FILE`")
	}
}

// of names the rank that the checkpoint belongs to, for private.
func (c *Checkpoint) of() string {
	if c.Rank == nil {
		return ""
	}
	return fmt.Sprintf("  rank %d", *c.Rank)
}

func progressTable(all []Dataset) *terminal.Table {
	t := terminal.NewTable("DATASET", "STATE", "PASS", "", "PROGRESS", "SETTLED>", "OF>", "LAG>", "KEPT FOR>")
	for _, d := range all {
		state := d.State
		if d.Reason != "" && d.State != "running" {
			state += " (" + terminal.Clip(d.Reason, 40) + ")"
		}
		if d.Silence != nil {
			state += " (no answer from the source)"
		}
		t.Row(d.Name, state, d.passText(), terminal.Bar(d.Counts.Settled, d.Counts.Listed, 12), d.short(),
			terminal.Amount(d.Counts.Settled, d.Unit), terminal.Amount(d.Counts.Listed, d.Unit), d.lag(), d.Retention.text())
		if b := d.Backfill; b != nil {
			t.Row("  backfill", "", "", terminal.Bar(b.Counts.Settled, b.Counts.Listed, 12), b.percent(),
				terminal.Amount(b.Counts.Settled, b.Unit), terminal.Amount(b.Counts.Listed, b.Unit), "", "")
		}
	}
	return t
}

// distanceTable shows how far each stage is from the end of the listed input.
func distanceTable(all []Dataset) *terminal.Table {
	t := terminal.NewTable("TO HEAD", "ACKED>", "LEASED>", "PLANNED>", "EXCLUDED>")
	for _, d := range all {
		c := d.Counts
		t.Row(d.Name, terminal.Amount(c.Listed-c.Settled, d.Unit), terminal.Amount(c.Listed-c.Settled-c.Leased, d.Unit), terminal.Amount(c.Listed-c.Planned, d.Unit), terminal.Amount(c.Excluded, d.Unit))
	}
	return t
}

func agentTable(all []Agent) *terminal.Table {
	t := terminal.NewTable("AGENT", "SESSION", "HEARD>", "WORKERS>", "HOST", "PID>", "GPUS")
	for _, g := range all {
		t.Row(g.Name, g.Session, terminal.Ago(g.LastHeardSeconds), fmt.Sprint(g.Workers), g.Host, fmt.Sprint(g.PID), fmt.Sprint(len(g.GPUs)))
	}
	return t
}

func workerTable(v *Job) *terminal.Table {
	var total uint64
	for _, w := range v.Workers {
		total += w.UnitsAcked
	}
	unit := "records"
	if len(v.Datasets) > 0 {
		unit = v.Datasets[0].Unit
	}
	t := terminal.NewTable("RANK>", "STATE", "RATE>", "SHARE>", "STEP>", "WAIT/STEP>", "LEASES>", "AGENT", "PID>")
	for _, w := range v.Workers {
		t.Row(fmt.Sprint(w.Rank), w.State, terminal.Amount(sources.InUnits(unit, int64(w.Rate)), unit)+"/s", terminal.Percent(int64(w.UnitsAcked), int64(total)), terminal.Grouped(w.Step),
			fmt.Sprintf("%.1f/%.1fs", w.WaitSeconds, w.StepSeconds), fmt.Sprint(w.Leases), w.Agent, fmt.Sprint(w.PID))
	}
	return t
}
