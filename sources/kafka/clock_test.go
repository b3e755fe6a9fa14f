package kafka

import (
	"testing"
	"time"
)

// setClock is a clock of which a test sets both hands.
func setClock(s *Source) (set func(jump, ran time.Duration)) {
	began := time.Now().Round(0)
	var jump, ran time.Duration
	s.clock = clock{
		began: began,
		wall:  func() time.Time { return began.Add(ran + jump) },
		since: func() time.Duration { return ran },
	}
	return func(j, r time.Duration) { jump, ran = j, r }
}

func TestAClockThatIsSetMakesNoRecordYounger(t *testing.T) {
	var s Source
	set := setClock(&s)
	for _, c := range []struct{ jump, ran, want time.Duration }{
		{0, 0, 0},
		{0, time.Hour, time.Hour},
		{5 * time.Hour, time.Hour, 6 * time.Hour}, // set forward: records are older at once
		{-5 * time.Hour, time.Hour, time.Hour},    // set back: they go on from where they were
		{-5 * time.Hour, 8 * time.Hour, 8 * time.Hour},
		{-time.Second, time.Hour, time.Hour},
	} {
		set(c.jump, c.ran)
		if got := s.clock.now().Sub(s.clock.began); got != c.want {
			t.Errorf("set by %v after %v: it shows %v after its start, want %v", c.jump, c.ran, got, c.want)
		}
	}
	real := newClock()
	if now := real.now(); now.Before(real.began) || time.Since(now) > time.Minute {
		t.Errorf("a new clock shows %v", now)
	}
}
