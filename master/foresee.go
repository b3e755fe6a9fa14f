package master

import (
	"time"

	"github.com/headrace/headrace/sources"
)

// What the guard makes of what it saw. All of it is arithmetic on the last minutes.

const (
	rateOver    = 5 * time.Minute  // rates are of so long
	rateAtLeast = 10 * time.Second // and unknown before so long
	rateSamples = 64
	halfOfKept  = 2 // guard.warn is at most that part of what the broker keeps
	timesCatch  = 2 // so often the time that catching up needs must be left
)

// glance is one partition at one moment, in places of its ruler.
type glance struct {
	at                time.Time
	low, head, needed int64
}

// glances are those of the last minutes, the newest last.
type glances []glance

func (l *glances) add(now glance) {
	s := append(*l, now)
	for len(s) > 2 && now.at.Sub(s[1].at) >= rateOver {
		s = s[1:]
	}
	if len(s) > rateSamples { // every other one of the middle
		kept := s[:1:1]
		for i := 1; i < len(s)-1; i += 2 {
			kept = append(kept, s[i])
		}
		s = append(kept, s[len(s)-1])
	}
	*l = s
}

// rate is how many records a second one of the offsets moves; 0: not, or not known.
func (l glances) rate(of func(glance) int64) float64 {
	if len(l) < 2 {
		return 0
	}
	first, last := l[0], l[len(l)-1]
	took := last.at.Sub(first.at)
	if took < rateAtLeast {
		return 0
	}
	return max(0, float64(of(last)-of(first))/took.Seconds())
}

// outlook is what is to be expected for the oldest needed record.
type outlook struct {
	records int64
	left    time.Duration // sources.Never
	by      string        // what takes it first: age, size, movement
	catchUp time.Duration // to read what is there, at the rate of the last minutes; 0: not known
	warn    bool
}

// foresee: by age as the source says; by size at the rate at which records come;
// where neither is known to apply, as the beginning of the log has moved lately.
// What is to be read ends at end, a place of the ruler.
func foresee(k *sources.Kept, seen glances, end int64, warn time.Duration) outlook {
	now := seen[len(seen)-1]
	end = min(end, now.head)
	o := outlook{records: max(0, now.needed-now.low), left: k.ByAge}
	if k.ByAge != sources.Never {
		o.by = "age"
	}
	if comes := seen.rate(func(l glance) int64 { return l.head }); k.Room != sources.Never && (k.Room <= 0 || comes > 0) {
		if left := seconds(float64(max(0, k.Room)) / max(comes, 1e-9)); left < o.left {
			o.left, o.by = left, "size"
		}
	}
	if moves := seen.rate(func(l glance) int64 { return l.low }); k.ByAge == sources.Never && k.Room == sources.Never && moves > 0 {
		o.left, o.by = seconds(float64(o.records)/moves), "movement"
	}
	if o.records == 0 && now.needed < now.low {
		o.left = 0 // it is gone; who holds it may have read it
	}
	if reads := seen.rate(func(l glance) int64 { return l.needed }); reads > 0 {
		o.catchUp = seconds(float64(max(0, end-now.needed)) / reads)
	}
	if k.Retention != sources.Never {
		warn = min(warn, k.Retention/halfOfKept)
	}
	o.warn = o.left != sources.Never && now.needed < end && (o.left < warn || o.left < timesCatch*min(o.catchUp, sources.Never/timesCatch))
	return o
}

func seconds(s float64) time.Duration {
	if s >= float64(sources.Never)/float64(time.Second) {
		return sources.Never
	}
	return time.Duration(s * float64(time.Second))
}
