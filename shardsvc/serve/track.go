package serve

import (
	"math"
	"sync"
	"time"

	"github.com/headrace/headrace/shardsvc"
)

const (
	rateWindow   = time.Minute
	trackSamples = 512
)

// track remembers how much of a dataset was listed, and how much was settled, at several
// times. The age of data and the drain time follow from these two curves.
type track struct {
	mu      sync.Mutex
	listed  []sample // one per change, the newest last
	settled []sample // of the last minute
	totals  map[outcome]total
}

// outcome is what was settled, in a unit.
type outcome struct{ outcome, unit string }

// total counts what was settled. A restore makes records pending again, so the ledger's count
// falls. The total does not: a counter that falls would look like one that begins again, and all of
// it would count as new.
type total struct {
	sum  int64
	last int64 // the ledger's count
}

// grown returns the totals of a dataset. At a master's start they are the ledger's counts.
func (t *track) grown(d *shardsvc.DatasetInfo) map[outcome]int64 {
	counts := map[string]shardsvc.Counts{d.Options.Unit: d.Counts}
	if old := d.Options.Backfill.Unit; old != "" { // the same unit, or another one
		counts[old] = counts[old].Plus(d.Backfill)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.totals == nil {
		t.totals = map[outcome]total{}
	}
	all := map[outcome]int64{}
	for unit, c := range counts {
		for name, n := range map[string]int64{"acked": c.Acked, "excluded": c.Excluded, "dropped": c.Dropped} {
			of := outcome{name, unit}
			k := t.totals[of]
			k.sum, k.last = k.sum+max(0, n-k.last), n
			t.totals[of], all[of] = k, k.sum
		}
	}
	return all
}

type sample struct {
	at    time.Time
	units int64
}

// seen adds a sample of the counts and returns age and drain time in seconds.
func (t *track) seen(now time.Time, c shardsvc.Counts) (age, drain float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.listed); n == 0 || t.listed[n-1].units < c.Listed {
		t.listed = append(t.listed, sample{now, c.Listed})
	}
	// Drop samples whose data is all settled: the age is that of the first other one.
	for len(t.listed) > 1 && t.listed[0].units <= c.Settled {
		t.listed = t.listed[1:]
	}
	if len(t.listed) > trackSamples { // every other one: ages get coarser, not wrong by more than a sample
		kept := t.listed[:0:0]
		for i, s := range t.listed {
			if i%2 == 0 || i == len(t.listed)-1 {
				kept = append(kept, s)
			}
		}
		t.listed = kept
	}
	backlog := c.Listed - c.Settled
	if backlog > 0 && len(t.listed) > 0 {
		age = now.Sub(t.listed[0].at).Seconds()
	}

	t.settled = append(t.settled, sample{now, c.Settled})
	for len(t.settled) > 2 && (now.Sub(t.settled[1].at) > rateWindow || len(t.settled) > trackSamples) {
		t.settled = t.settled[1:]
	}
	switch first := t.settled[0]; {
	case backlog <= 0:
		drain = 0
	case c.Settled > first.units:
		drain = float64(backlog) / (float64(c.Settled-first.units) / now.Sub(first.at).Seconds())
	default:
		drain = math.Inf(1)
	}
	return age, drain
}
