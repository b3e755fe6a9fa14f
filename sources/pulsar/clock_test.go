package pulsar

import (
	"testing"
	"time"

	"github.com/headrace/headrace/internal/wallclock"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// A topic has a TTL of 6 hours, and an entry was published one hour ago.
func TestAClockThatIsSetForetellsDeletionOfAnEntryTooEarlyAndNeverTooLate(t *testing.T) {
	s, err := Open(Options{Dataset: "d", Service: "pulsar://nobody:6650", Admin: "http://nobody:8080", Topics: []string{"public/default/t"}, MaxRecord: 1, Start: End{At: brokers.Earliest}, End: End{At: brokers.Never}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	began := time.Now().Round(0)
	clock, set := wallclock.Settable(began)
	p := partition{topic: "public/default/t"}
	at := messageAt{Ledger: 3, Entry: 5}
	s.clock = clock
	s.policies[p.topic] = policy{moved: 6 * time.Hour, refreshed: time.Now()}
	s.stamps[p] = stamp{at, began.Add(-time.Hour)}
	var l layout
	l.Ledgers = []ledgerInfo{{Ledger: 3, Entries: 9}}
	for _, c := range []struct{ jump, ran, want time.Duration }{
		{0, 0, 5 * time.Hour},
		{0, time.Hour, 4 * time.Hour},
		{-9 * time.Hour, time.Hour, 4 * time.Hour}, // set back: the entry does not become younger
		{3 * time.Hour, time.Hour, time.Hour},      // set forward: the entry is older at once
		{100 * time.Hour, time.Hour, 0},
	} {
		set(c.jump, c.ran)
		var x sources.Kept
		if err := s.foretell(t.Context(), p, &l, position(at.Ledger, at.Entry<<indexBits), &x); err != nil || x.ByAge != c.want {
			t.Errorf("clock set by %v after %v: foretold that the entry stays for %v (%v), want %v", c.jump, c.ran, x.ByAge, err, c.want)
		}
	}
}
