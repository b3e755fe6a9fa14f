package kafka

import "time"

// clock is the clock by which Kafka's retention is foretold. Kafka compares the timestamps
// of records with its own wall clock, so this must be a wall clock too. But somebody may
// set our wall clock while we run. If it were set back by an hour, records would look an
// hour younger, and a deletion would be foretold an hour too late. So the clock shows the
// wall clock, but never less than the wall clock at the start plus the time passed since.
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
