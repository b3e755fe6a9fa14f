// Package wallclock compares times that a broker wrote with the time of now. The broker uses
// its wall clock, so we must use ours. But somebody may set our wall clock while the process
// runs. A Clock therefore also counts the time since the process began, by the monotonic
// clock, and gives the answer that is safe for the caller:
//
//   - Latest never makes a record younger. Ask it when a deletion is foretold: too early a
//     warning is safe.
//   - Earliest never makes a record older. Ask it when old records are left out: too late is
//     safe.
//
// Example: the process began at 12:00 and has run for one hour. Then the wall clock is set to
// 20:00. Latest is 20:00, Earliest is 13:00. If it is set to 7:00 instead, Latest is 13:00 and
// Earliest is 7:00.
//
// A clock that is wrong when the process begins cannot be noticed. While the whole machine is
// suspended, the monotonic clock stands still: to a Clock that looks as if the wall clock had
// been set forward.
package wallclock

import "time"

var start = time.Now() // one for the process: what is opened after a jump does not begin anew

// Clock is the wall clock, and what it would show if nobody had set it.
type Clock struct {
	wall  func() time.Time
	ran   func() time.Duration // since began, by the monotonic clock
	began time.Time
}

// System returns the clock of this process.
func System() Clock {
	return Clock{wall: time.Now, ran: func() time.Duration { return time.Since(start) }, began: start}
}

// Latest returns the later one of what the wall clock shows and what it would show.
func (c Clock) Latest() time.Time {
	wall, unset := c.both()
	if wall.Before(unset) {
		return unset
	}
	return wall
}

// Earliest returns the earlier one of what the wall clock shows and what it would show.
func (c Clock) Earliest() time.Time {
	wall, unset := c.both()
	if unset.Before(wall) {
		return unset
	}
	return wall
}

// Ahead returns how far the wall clock was set forward since the process began; negative: back.
func (c Clock) Ahead() time.Duration {
	wall, unset := c.both()
	return wall.Sub(unset)
}

// both are without a monotonic reading, so that they are compared as wall clocks.
func (c Clock) both() (wall, unset time.Time) {
	return c.wall().Round(0), c.began.Round(0).Add(c.ran())
}

// Settable returns a clock for tests, and what sets it: jump is how far the wall clock was
// set, ran is the time that has passed since began.
func Settable(began time.Time) (c Clock, set func(jump, ran time.Duration)) {
	var jump, ran time.Duration
	c = Clock{
		began: began,
		wall:  func() time.Time { return began.Add(ran + jump) },
		ran:   func() time.Duration { return ran },
	}
	return c, func(j, r time.Duration) { jump, ran = j, r }
}
