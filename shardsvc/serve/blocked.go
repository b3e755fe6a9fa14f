package serve

import "github.com/headrace/headrace/shardsvc"

// unnoticed is how late the scheduler may wake the loop without that counting as a stop.
const unnoticed = 5 * shardsvc.Millisecond

// blocked adds up the time in which the loop could not read its inbox: it waited for the
// committer with a full buffer, it worked on one run of events, or the process stood
// still. The next Tick adds this time to all deadlines, so that no agent loses its
// session because its master was slow.
type blocked struct {
	total shardsvc.Time
	since shardsvc.Time // when waiting with a full buffer began; 0: not waiting
	awake shardsvc.Time // when the loop last woke
	slept shardsvc.Time // when it last went to sleep
}

func (b *blocked) start(now shardsvc.Time) { b.awake = now }

// begin notes that the buffer is full.
func (b *blocked) begin(now shardsvc.Time) {
	if b.since == 0 {
		b.since = now
	}
}

// end notes that the committer is idle again: it takes the full buffer next.
func (b *blocked) end(now shardsvc.Time) {
	if b.since != 0 {
		b.total += now - b.since
		b.since = 0
	}
}

// sleep notes that the loop waits from now on, and counts the work since it woke.
func (b *blocked) sleep(now shardsvc.Time) {
	if work := now - b.awake; b.since == 0 && work > unnoticed {
		b.total += work
	}
	b.slept = now
}

// woke notes that the loop goes on. wake is the deadline that it had asked for. If that
// passed while it slept, the process stood still.
func (b *blocked) woke(now, wake shardsvc.Time) {
	b.awake = now
	if late := now - max(wake, b.slept); wake < shardsvc.Never && late > unnoticed && b.since == 0 {
		b.total += late
	}
}

// take returns the total and sets it to 0.
func (b *blocked) take() shardsvc.Time {
	t := b.total
	b.total = 0
	return t
}
