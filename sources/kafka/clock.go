package kafka

import "time"

// clock tells the time by which Kafka's retention is foretold. Kafka compares the
// timestamps of records with its own wall clock, so this has to be a wall clock too;
// but ours may be set while we run, by hours. The clock goes by the wall clock, and
// never below what the wall clock showed at the start plus the time that has passed
// since: set back, it would make records younger, and a deletion would be foretold too late.
type clock struct {
	wall  func() time.Time
	since func() time.Duration // since the start, by the monotonic clock
	began time.Time            // what wall showed at the start
}

func newClock() clock {
	began := time.Now()
	return clock{wall: time.Now, since: func() time.Duration { return time.Since(began) }, began: began}
}

func (c clock) now() time.Time {
	wall, ran := c.wall(), c.began.Add(c.since())
	if wall.Round(0).Before(ran.Round(0)) { // Round(0): by the wall clock
		return ran
	}
	return wall
}
