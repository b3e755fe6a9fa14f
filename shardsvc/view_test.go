package shardsvc

import (
	"fmt"
	"strings"
	"testing"
)

// asked asks the view everything that it answers.
func asked(c *Core, now Time) string {
	var b strings.Builder
	say := func(answers ...any) { fmt.Fprintf(&b, "%+v\n", answers) }
	workers := c.Workers()
	say(c.Agents(), workers, c.Leftovers(), c.NextDataset(), c.NextPartition())
	for _, w := range workers {
		say(c.PlanReclaim(&Reclaim{Rank: w.Rank}))
	}
	for _, d := range c.Datasets() {
		one, ok := c.Dataset(d.ID)
		say(d, one, ok, c.State(now, d.ID, 0, 100), c.Imbalance(d.ID), c.Needed(d.ID))
		say(c.BoundMarks(d.ID), c.RetainMarks(d.ID))
		for _, p := range c.Partitions(d.ID) {
			say(p, c.Segments(p.Number, -1, 0), c.OfSource(p.Number), c.LastSegment(p.Number), c.HasPartition(p.Number))
		}
	}
	var deleted []Deletion
	say(c.PlanRewind(nil, deleted))
	for _, k := range c.Cuts() {
		say(k, c.GoneOf(k.ID, deleted))
		if body, ok := c.CutBody(k.ID); ok {
			say(c.PlanRewind(body, deleted))
		}
	}
	return b.String()
}

// askView asks the view everything after each command of a scenario. The view must answer the
// same twice and leave nothing to be stored. The recorded transcripts show that it changes
// nothing else.
func (w *world) askView(t *testing.T) {
	t.Helper()
	first := asked(w.core, w.now)
	if again := asked(w.core, w.now); again != first {
		t.Errorf("the view first answered\n%sand then\n%s", first, again)
	}
	w.fx.Reset()
	w.core.Flush(&w.fx)
	if n := len(w.fx.Puts); n > 0 {
		t.Errorf("the view has changed something: there are %d puts, the first one of key %q", n, w.fx.Puts[0].Key)
	}
}
