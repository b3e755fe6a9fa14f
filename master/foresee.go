package master

import (
	"time"

	"github.com/headrace/headrace/sources"
)

// The guard's forecast: when will the source delete the oldest record that is still
// needed? It is arithmetic on what was seen in the last minutes.

const (
	rateOver    = 5 * time.Minute  // rates are measured over this time
	rateAtLeast = 10 * time.Second // and are unknown before
	rateSamples = 64
	halfOfKept  = 2         // guard.warn is at most that part of what the broker keeps
	byDeleted   = "deleted" // nothing is left to forecast
	timesCatch  = 2         // warn if less is left than this many times the catch-up time
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

// rate is the speed of one of the offsets, in records per second. 0: it stands still, or
// the rate is not known yet.
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

// outlook is the forecast for the oldest needed record.
type outlook struct {
	records int64         // between the beginning of the log and the oldest needed record
	left    time.Duration // until that record may be deleted, or sources.Never
	by      string        // the rule that deletes it first: age, size, movement; or byDeleted
	catchUp time.Duration // time to read up to the end of the log, at the rate of the last minutes; 0: not known
	warn    bool
}

// foresee says when the oldest needed record will be deleted: by age, as the source
// says; by size, at the rate at which records arrive; if neither rule is known, at the
// speed at which the log's beginning has moved lately. end, a place of the ruler, is
// where the input ends.
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
	if moves := seen.rate(func(l glance) int64 { return l.low }); !k.Retained && k.ByAge == sources.Never && k.Room == sources.Never && moves > 0 {
		o.left, o.by = seconds(float64(o.records)/moves), "movement"
	}
	if o.records == 0 && now.needed < now.low {
		o.left, o.by = 0, byDeleted // (a worker that holds it may have read it before)
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
