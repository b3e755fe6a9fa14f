package wallclock

import (
	"testing"
	"time"
)

func TestAClockThatIsSetMakesNoRecordYoungerForLatestNorOlderForEarliest(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c, set := Settable(began)
	for _, x := range []struct{ jump, ran, latest, earliest time.Duration }{
		{0, 0, 0, 0},
		{0, time.Hour, time.Hour, time.Hour},
		{7 * time.Hour, time.Hour, 8 * time.Hour, time.Hour},   // set forward
		{-5 * time.Hour, time.Hour, time.Hour, -4 * time.Hour}, // set back
		{-5 * time.Hour, 8 * time.Hour, 8 * time.Hour, 3 * time.Hour},
		{-time.Second, time.Hour, time.Hour, time.Hour - time.Second},
	} {
		set(x.jump, x.ran)
		if got := c.Latest().Sub(began); got != x.latest {
			t.Errorf("set by %v after %v: Latest is %v after its start, want %v", x.jump, x.ran, got, x.latest)
		}
		if got := c.Ahead(); got != x.jump {
			t.Errorf("set by %v after %v: Ahead is %v", x.jump, x.ran, got)
		}
		if got := c.Earliest().Sub(began); got != x.earliest {
			t.Errorf("set by %v after %v: Earliest is %v after its start, want %v", x.jump, x.ran, got, x.earliest)
		}
	}
}

func TestTheClockOfTheProcessShowsTheWallClock(t *testing.T) {
	before := time.Now().Round(0)
	c := System()
	early, late := c.Earliest(), c.Latest()
	if late.Before(before) || late.Before(early) || before.Sub(early) > time.Minute {
		t.Errorf("the wall clock showed %v; Latest is %v, Earliest is %v", before, late, early)
	}
}
