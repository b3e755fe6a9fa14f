package serve

import "github.com/headrace/headrace/shardsvc"

// lateness below this is the scheduler's, not a stop.
const unnoticed = 5 * shardsvc.Millisecond

// blocked adds up how long the loop did not read its inbox although it was not
// idle: it waited for the committer with a full buffer, it worked on one run of
// events, or the process stood still. The time goes into the next Tick, so that
// no agent loses its session because its master was slow.
type blocked struct {
	total shardsvc.Time
	since shardsvc.Time // begin of waiting with a full buffer; 0: not waiting
	awake shardsvc.Time // when the loop last woke
	slept shardsvc.Time // when it last went to sleep
}

func (b *blocked) start(now shardsvc.Time) { b.awake = now }

// begin: the buffer is full.
func (b *blocked) begin(now shardsvc.Time) {
	if b.since == 0 {
		b.since = now
	}
}

// end: the committer is idle again, so the buffer is about to be empty.
func (b *blocked) end(now shardsvc.Time) {
	if b.since != 0 {
		b.total += now - b.since
		b.since = 0
	}
}

// sleep: the loop has done all it could and waits from now on.
func (b *blocked) sleep(now shardsvc.Time) {
	if work := now - b.awake; b.since == 0 && work > unnoticed {
		b.total += work
	}
	b.slept = now
}

// woke: something happened. Later than the deadline that was asked for: the
// process stood still.
func (b *blocked) woke(now, wake shardsvc.Time) {
	b.awake = now
	if late := now - max(wake, b.slept); wake < shardsvc.Never && late > unnoticed && b.since == 0 {
		b.total += late
	}
}

// take returns the total and starts anew.
func (b *blocked) take() shardsvc.Time {
	t := b.total
	b.total = 0
	return t
}
