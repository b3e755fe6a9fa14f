package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Print writes the report for people.
func (r *Report) Print(out io.Writer) {
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(out, "  %-14s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("records", "%s in the log", Thousands(r.Records))
	line("applied once", "%s", Thousands(r.Once))
	line("applied twice", "%s%s", Thousands(r.Twice), r.whyTwice())
	line("never", "%s", Thousands(r.Never))
	line("redelivered", "%s handed to a trainer's loop more than once", Thousands(r.Redelivered))
	if r.Foreign > 0 {
		line("FOREIGN", "%s rows that are no record of the log, or differ from it", Thousands(r.Foreign))
	}
	for _, k := range r.Kills {
		line("killed", "%s (process %d) at %.1f s: %s", k.Name, k.PID, k.AtSeconds, k.outcome())
	}
	if r.Live == nil {
		line("time", "%.1f s, %.3f of the ideal (records / summed rates of the living)", r.MakespanSeconds, r.MakespanRatio)
	} else {
		line("time", "%.1f s; the producer took %.1f s, and the last record was in the model %.1f s after it was produced",
			r.MakespanSeconds, r.Live.ProducedSeconds, r.Live.BehindSeconds)
	}
	var shares []string
	for _, rank := range slices.Sorted(maps.Keys(r.WorkerShare)) {
		shares = append(shares, fmt.Sprintf("trainer %s %.1f %%", rank, 100*r.WorkerShare[rank]))
	}
	line("shares", "%s", strings.Join(shares, ", "))
	if r.CPU != nil {
		line("CPU", "trainers %.0f %% of all cores, agents %.0f %%, master %.0f %%", 100*r.CPU["trainer"], 100*r.CPU["agent"], 100*r.CPU["master"])
	}
	line("AUC", "%.4f; last tenth before the drift %.4f, first after it %.4f (each record predicted, then learned)", r.AUC, r.AUCBefore, r.AUCAfter)
	line("log loss", "%.4f; before the drift %.4f, after it %.4f", r.LogLoss, r.LogLossBefore, r.LogLossAfter)
	var curve []string
	for _, w := range r.OverTime {
		curve = append(curve, strings.TrimPrefix(fmt.Sprintf("%.3f", w.AUC), "0"))
	}
	line("by tenths", "AUC %s", strings.Join(curve, " "))
	if len(r.Groups) > 0 {
		r.compare(out)
	}
}

// compare prints the last table: ours, and the consumer groups on the same topic.
func (r *Report) compare(out io.Writer) {
	line := func(name, ours string, theirs func(*Group) string) {
		_, _ = fmt.Fprintf(out, "  %-34s %12s", name, ours)
		for _, g := range r.Groups {
			_, _ = fmt.Fprintf(out, " %18s", theirs(g))
		}
		_, _ = fmt.Fprintln(out)
	}
	number := func(name string, ours int, theirs func(*Group) int) {
		line(name, Thousands(ours), func(g *Group) string { return Thousands(theirs(g)) })
	}
	_, _ = fmt.Fprintln(out, "\n  The same records at the same time, counted in the same way from each one's own journals:")
	line("", "Headrace", func(g *Group) string { return g.Title })
	number("in the model once", r.Once, func(g *Group) int { return g.Once })
	number("twice or more", r.Twice, func(g *Group) int { return g.Twice })
	number("never", r.Never, func(g *Group) int { return g.Never })
	number("repeats in all", r.Repeats, func(g *Group) int { return g.Repeats })
	line("from produced to learned: half", millis(r.Live.P50), func(g *Group) string { return millis(g.P50) })
	line("                          99 of 100", millis(r.Live.P99), func(g *Group) string { return millis(g.P99) })
	if r.CPU != nil {
		share := func(of float64) string { return fmt.Sprintf("%.1f %%", 100*of) }
		line("CPU of all its processes", share(r.CPU["trainer"]+r.CPU["agent"]+r.CPU["master"]), func(g *Group) string { return share(g.CPU) })
	}
	_, _ = fmt.Fprintf(out, "  killed of Headrace: %s\n", names(r.Kills))
	for _, g := range r.Groups {
		_, _ = fmt.Fprintf(out, "  %s: %s; killed: %s\n", g.Title, g.About, names(g.Kills))
	}
}

func millis(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

func names(kills []Killed) string {
	var all []string
	for _, k := range kills {
		all = append(all, k.Name)
	}
	if len(all) == 0 {
		return "nobody"
	}
	return strings.Join(all, ", ")
}

func (r *Report) whyTwice() string {
	var why []string
	if r.TwiceUnstepped > 0 {
		why = append(why, fmt.Sprintf("%s yielded to the killed trainer and not stepped", Thousands(r.TwiceUnstepped)))
	}
	if r.TwiceUnexplained > 0 {
		why = append(why, fmt.Sprintf("%s WITHOUT A REASON", Thousands(r.TwiceUnexplained)))
	}
	if len(why) == 0 {
		return ""
	}
	return " (" + strings.Join(why, "; ") + ")"
}

func (k Killed) outcome() string {
	switch {
	case k.What == "broker" && k.ReleaseMS != nil:
		return fmt.Sprintf("the first record produced after it was in the model %.0f ms later", *k.ReleaseMS)
	case k.What == "broker":
		return "no record was produced after it"
	case k.ReleaseMS != nil && k.What == "master":
		return fmt.Sprintf("first grant after it %.0f ms later", *k.ReleaseMS)
	case k.ReleaseMS != nil:
		return fmt.Sprintf("first grant of its rows to another %.0f ms later", *k.ReleaseMS)
	case k.What == "agent":
		return "no row had to go to another; its trainers kept theirs"
	}
	return "no row had to go to another"
}

// Thousands writes 2000000 as 2,000,000.
func Thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
