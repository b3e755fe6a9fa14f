package master

import (
	"testing"
	"time"

	"github.com/headrace/headrace/sources"
)

// seenFor returns glances over a minute. lows, heads and reads are the moves per second of the three offsets.
func seenFor(low, head, needed int64, lows, heads, reads int64) glances {
	var l glances
	start := time.Unix(1_700_000_000, 0)
	for s := int64(0); s <= 60; s += 5 {
		back := 60 - s
		l.add(glance{start.Add(time.Duration(s) * time.Second), low - lows*back, head - heads*back, needed - reads*back})
	}
	return l
}

func TestDeletionIsForeseenByAgeBySizeOrByHowTheLogMoved(t *testing.T) {
	const never = sources.Never
	for name, c := range map[string]struct {
		kept               sources.Kept
		lows, heads, reads int64
		end                int64
		warnAt             time.Duration
		left               time.Duration
		by                 string
		records            int64
		warn               bool
		needed             int64
	}{
		"nothing deletes":               {kept: sources.Kept{ByAge: never, Room: never, Retention: never}, left: never, records: 1000},
		"by age, far away":              {kept: sources.Kept{ByAge: 50 * time.Hour, Room: never, Retention: 168 * time.Hour}, left: 50 * time.Hour, by: "age", records: 1000},
		"by age, near":                  {kept: sources.Kept{ByAge: 50 * time.Minute, Room: never, Retention: 168 * time.Hour}, left: 50 * time.Minute, by: "age", records: 1000, warn: true},
		"by age, near, but kept short":  {kept: sources.Kept{ByAge: 50 * time.Minute, Room: never, Retention: time.Hour}, left: 50 * time.Minute, by: "age", records: 1000},
		"by size, at the rate of now":   {kept: sources.Kept{ByAge: never, Room: 36_000, Retention: never}, heads: 10, left: time.Hour, by: "size", records: 1000},
		"by size, and nothing comes":    {kept: sources.Kept{ByAge: never, Room: 36_000, Retention: never}, left: never, records: 1000},
		"by size, any time":             {kept: sources.Kept{ByAge: never, Room: -5, Retention: never}, left: 0, by: "size", records: 1000, warn: true},
		"size before age":               {kept: sources.Kept{ByAge: 50 * time.Hour, Room: 36_000, Retention: 168 * time.Hour}, heads: 10, left: time.Hour, by: "size", records: 1000},
		"age before size":               {kept: sources.Kept{ByAge: 30 * time.Minute, Room: 36_000, Retention: 168 * time.Hour}, heads: 10, left: 30 * time.Minute, by: "age", records: 1000, warn: true},
		"somebody deletes":              {kept: sources.Kept{ByAge: never, Room: never, Retention: never}, lows: 10, left: 100 * time.Second, by: "movement", records: 1000, warn: true},
		"the source drops read records": {kept: sources.Kept{ByAge: never, Room: never, Retention: never, Retained: true}, lows: 10, left: never, records: 1000},
		"a burst expired, age is known": {kept: sources.Kept{ByAge: 50 * time.Hour, Room: never, Retention: 168 * time.Hour}, lows: 100, left: 50 * time.Hour, by: "age", records: 1000},
		"too slow to catch up in time":  {kept: sources.Kept{ByAge: 20 * time.Hour, Room: never, Retention: 168 * time.Hour}, reads: 1, left: 20 * time.Hour, by: "age", records: 1000, warn: true},
		"fast enough":                   {kept: sources.Kept{ByAge: 20 * time.Hour, Room: never, Retention: 168 * time.Hour}, reads: 10, left: 20 * time.Hour, by: "age", records: 1000},
		"the rest is not to be read":    {kept: sources.Kept{ByAge: 20 * time.Hour, Room: never, Retention: 168 * time.Hour}, reads: 1, end: 2000, left: 20 * time.Hour, by: "age", records: 1000},
		"all is read":                   {kept: sources.Kept{ByAge: time.Minute, Room: never, Retention: 168 * time.Hour}, needed: 100_000, left: time.Minute, by: "age", records: 99_500},
		"it is gone":                    {kept: sources.Kept{ByAge: never, Room: never, Retention: never}, needed: 400, left: 0, by: byDeleted, records: 0, warn: true},
		"it is gone, young as it is":    {kept: sources.Kept{ByAge: 21 * time.Hour, Room: never, Retention: 24 * time.Hour}, needed: 400, left: 0, by: byDeleted, records: 0, warn: true},
	} {
		needed, end := int64(1500), int64(1)<<60
		if c.needed > 0 {
			needed = c.needed
		}
		if c.end > 0 {
			end = c.end
		}
		o := foresee(&c.kept, seenFor(500, 100_000, needed, c.lows, c.heads, c.reads), end, time.Hour)
		if o.records != c.records || o.by != c.by || o.warn != c.warn || (o.left-c.left).Abs() > time.Millisecond {
			t.Errorf("%s: foreseen is %+v, want %+v", name, o, c)
		}
	}
}

func TestRatesAreOfTheLastMinutesAndNotOfLessThanSeconds(t *testing.T) {
	var l glances
	start := time.Unix(1_700_000_000, 0)
	for s := range 4000 {
		head := int64(s) * 1000
		if s > 3000 {
			head = 3_000_000 + int64(s-3000)*10
		}
		l.add(glance{start.Add(time.Duration(s) * time.Second), 0, head, 0})
		if s == 5 && l.rate(func(l glance) int64 { return l.head }) != 0 {
			t.Error("five seconds give a rate, want none")
		}
	}
	if r := l.rate(func(l glance) int64 { return l.head }); r < 9.9 || r > 10.1 {
		t.Errorf("the rate over the last minutes is %v, want 10", r)
	}
	if len(l) > rateSamples+1 {
		t.Errorf("%d glances are kept, want at most %d", len(l), rateSamples+1)
	}
}
