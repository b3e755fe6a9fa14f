//go:build kafka

package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/headrace/headrace/sources"
)

func kept(t *testing.T, s *Source, offset int64, ahead time.Duration) sources.Kept {
	t.Helper()
	parts, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.Keeps(t.Context(), []sources.Mark{{Partition: parts[0], Position: sources.Position{Offset: offset}}}, ahead)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || all[0].Err != nil || all[0].Blind != "" || all[0].Partition != parts[0] {
		t.Fatalf("%+v", all)
	}
	return all[0]
}

// aged are n records, one a minute, the newest written now.
func aged(n int) []message {
	all := numbered(0, n, 1000)
	for i := range all {
		all[i].time = time.Now().Add(time.Duration(i-n+1) * time.Minute)
	}
	return all
}

func TestHowLongARecordStaysByItsAgeIsToldWithinAnEighthAndNeverTooLong(t *testing.T) {
	b := realBroker(t)
	const age = 6 * time.Hour
	topic := newTopic(t, b, 1, map[string]string{"retention.ms": fmt.Sprint(age.Milliseconds())})
	const n = 300
	produce(t, b, topic, 0, 0, aged(n))
	s := openFor(t, options(b, topic))
	for offset := int64(0); offset < n; offset += 13 {
		x := kept(t, s, offset, time.Hour)
		stays := age - time.Duration(n-1-offset)*time.Minute
		if x.ByAge > stays || x.ByAge < stays*7/8-3*time.Minute {
			t.Errorf("offset %d stays %v, it is told %v", offset, stays, x.ByAge)
		}
		if x.Low != 0 || x.Head != n || x.Room != sources.Never || x.Retention != age {
			t.Errorf("offset %d: %+v", offset, x)
		}
	}
	if x := kept(t, s, n, time.Hour); x.ByAge < age*7/8 {
		t.Errorf("what comes next is told to stay %v of %v", x.ByAge, age)
	}
}

// An old record behind a young one stays as long as that.
func TestARecordStaysAsLongAsAYoungerOneBeforeIt(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, map[string]string{"retention.ms": fmt.Sprint((6 * time.Hour).Milliseconds())})
	all := aged(10)
	all[7].time = time.Now().Add(-5 * time.Hour)
	produce(t, b, topic, 0, 0, all)
	if x := kept(t, openFor(t, options(b, topic)), 7, time.Hour); x.ByAge < 5*time.Hour {
		t.Errorf("it stays %v", x.ByAge)
	}
}

func TestHowManyRecordsMayComeBeforeOneIsDeletedBySizeIsTold(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, map[string]string{"retention.bytes": "2000000", "retention.ms": "-1"})
	const n = 1000
	produce(t, b, topic, 0, 0, aged(n)) // about 1,020 bytes each
	s := openFor(t, options(b, topic))
	for _, offset := range []int64{0, 600, n} {
		x := kept(t, s, offset, time.Hour)
		if want := 2_000_000/1020 - (n - offset); x.Room < want-60 || x.Room > want+60 || x.ByAge != sources.Never {
			t.Errorf("offset %d has room for %d records, about %d are true; %+v", offset, x.Room, want, x)
		}
	}
}

func TestATopicThatKeepsEverythingIsToldSo(t *testing.T) {
	b := realBroker(t)
	for _, config := range []map[string]string{
		{"retention.ms": "-1", "retention.bytes": "-1"},
		{"cleanup.policy": "compact", "retention.ms": "1000", "retention.bytes": "1000"},
	} {
		topic := newTopic(t, b, 1, config)
		produce(t, b, topic, 0, 0, []message{{key: []byte("k"), value: []byte("v"), time: time.Now()}})
		if x := kept(t, openFor(t, options(b, topic)), 0, time.Hour); x.ByAge != sources.Never || x.Room != sources.Never {
			t.Errorf("%v: %+v", config, x)
		}
	}
}
