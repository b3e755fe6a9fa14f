package rocketmq

import (
	"testing"
	"time"

	"github.com/headrace/headrace/internal/wallclock"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// A broker that keeps messages for 72 hours, and a message that was stored 10 hours ago.
func TestAClockThatIsSetForetellsDeletionOfAMessageTooEarlyAndNeverTooLate(t *testing.T) {
	s, err := Open(Options{Dataset: "d", NameServers: []string{"nobody:1"}, Topics: []string{"t"}, MaxRecord: 1, Start: End{At: brokers.Earliest}, End: End{At: brokers.Never}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	began := time.Now().Round(0)
	clock, set := wallclock.Settable(began)
	p := partition{"c1", "broker-a", "t", 0}
	s.clock = clock
	s.policies["c1/broker-a"] = policy{age: 72 * time.Hour, at: time.Now()}
	s.stamps[p.id()] = stamp{offset: 5, stored: began.Add(-10 * time.Hour)}
	for _, c := range []struct{ jump, ran, want time.Duration }{
		{0, 0, 62 * time.Hour},
		{0, time.Hour, 61 * time.Hour},
		{-9 * time.Hour, time.Hour, 61 * time.Hour}, // set back: the message is no younger
		{7 * time.Hour, time.Hour, 54 * time.Hour},  // set forward: it is older at once
		{100 * time.Hour, time.Hour, 0},
	} {
		set(c.jump, c.ran)
		x := sources.Kept{Head: sources.Position{Offset: 9}}
		if err := s.foretell(t.Context(), p, 5, &x); err != nil || x.ByAge != c.want {
			t.Errorf("set by %v after %v: it is told to stay %v (%v), want %v", c.jump, c.ran, x.ByAge, err, c.want)
		}
	}
}
