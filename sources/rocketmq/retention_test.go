package rocketmq

import (
	"testing"
	"time"

	"github.com/headrace/headrace/internal/wallclock"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// A broker keeps messages for 72 hours, and a message was stored 10 hours ago.
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
		{-9 * time.Hour, time.Hour, 61 * time.Hour}, // set back: the message does not become younger
		{7 * time.Hour, time.Hour, 54 * time.Hour},  // set forward: the message is older at once
		{100 * time.Hour, time.Hour, 0},
	} {
		set(c.jump, c.ran)
		x := sources.Kept{Head: sources.Position{Offset: 9}}
		if err := s.foretell(t.Context(), p, 5, &x); err != nil || x.ByAge != c.want {
			t.Errorf("clock set by %v after %v: foretold that the message stays for %v (%v), want %v", c.jump, c.ran, x.ByAge, err, c.want)
		}
	}
}

// A broker whose disk is too full deletes its oldest files. Above 85 % it always does, whatever
// diskMaxUsedSpaceRatio is.
func TestABrokerWhoseDiskIsFullMayDeleteAtAnyTime(t *testing.T) {
	f := newFake(t, 1)
	f.write("one", 10)
	for _, c := range []struct {
		config      string
		logs, queue string
		full        bool
	}{
		{"diskMaxUsedSpaceRatio=75\ndiskSpaceCleanForciblyRatio=85\n", "0.74", "0.74", false},
		{"diskMaxUsedSpaceRatio=75\ndiskSpaceCleanForciblyRatio=85\n", "0.76", "0.10", true},
		{"diskMaxUsedSpaceRatio=75\ndiskSpaceCleanForciblyRatio=85\n", "0.10", "0.76", true},
		{"diskMaxUsedSpaceRatio=95\ndiskSpaceCleanForciblyRatio=85\n", "0.84", "0.84", false},
		{"diskMaxUsedSpaceRatio=95\ndiskSpaceCleanForciblyRatio=85\n", "0.86", "0.86", true},
		{"diskMaxUsedSpaceRatio=95\ndiskSpaceCleanForciblyRatio=99\n", "0.86", "0.86", true}, // a limit above 85 counts as 85
		{"diskMaxUsedSpaceRatio=95\ndiskSpaceCleanForciblyRatio=40\n", "0.41", "0.41", true},
		{"diskMaxUsedSpaceRatio=95\ndiskSpaceCleanForciblyRatio=20\n", "0.29", "0.29", false}, // a limit below 30 counts as 30
		{"diskMaxUsedSpaceRatio=75\ndiskSpaceCleanForciblyRatio=85\ndiskSpaceWarningLevelRatio=50\n", "0.51", "0.10", true},
		{"diskMaxUsedSpaceRatio=75\n", "0.76", "", true}, // an older version does not name the disk of the queues
		{"diskMaxUsedSpaceRatio=95\n", "0.86", "", true}, // but it, too, deletes from 85 on
		{"", "0.99", "0.99", false},
	} {
		f.set(func() {
			f.master().config, f.master().disk = "fileReservedTime=72\n"+c.config, [2]string{c.logs, c.queue}
		})
		s := f.source(f.options())
		if _, err := s.Partitions(t.Context()); err != nil {
			t.Fatal(err)
		}
		kept, err := s.Keeps(t.Context(), []sources.Mark{{Partition: fakeQueue}}, time.Hour)
		if err != nil || kept[0].Err != nil {
			t.Fatal(err, kept)
		}
		if full := kept[0].Room < 0; full != c.full || kept[0].Blind != "" || kept[0].Retention != 72*time.Hour {
			t.Errorf("with %q, and disks that are used to %s and %s: %+v", c.config, c.logs, c.queue, kept[0])
		}
	}
}
