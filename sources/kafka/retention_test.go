//go:build kafka

package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/wallclock"
	"github.com/headrace/headrace/sources"
)

func kept(t *testing.T, s *Source, offset int64, ahead time.Duration) sources.Kept {
	t.Helper()
	parts := asked(t, func() ([]sources.PartitionID, error) { return s.Partitions(t.Context()) })
	all := asked(t, func() ([]sources.Kept, error) {
		all, err := s.Keeps(t.Context(), []sources.Mark{{Partition: parts[0], Position: sources.Position{Offset: offset}}}, ahead)
		if err == nil && len(all) == 1 {
			err = all[0].Err
		}
		return all, err
	})
	if len(all) != 1 || all[0].Err != nil || all[0].Blind != "" {
		t.Fatalf("%+v", all)
	}
	return all[0]
}

// Kafka deletes by the time of a record. Tests write old times, and a broker that runs for
// minutes on a busy machine would delete their records in the middle of a test.
func TestARecordWithAnOldTimeStaysInATopicThatNamesNoRetention(t *testing.T) {
	b := realBroker(t) // it looks often for records to delete
	old := []message{{value: []byte("old"), time: time.UnixMilli(1_700_000_000_000)}}
	stays, goes := newTopic(t, b, 1, nil), newTopic(t, b, 1, map[string]string{"retention.ms": "1000"})
	produce(t, b, stays, 0, 0, old)
	s := openFor(t, options(b, stays, goes))
	for round := int64(1); round <= 2; round++ { // between two deletions in this topic, Kafka has looked at all topics
		produce(t, b, goes, 0, 0, old)
		for low := int64(0); low < round; time.Sleep(20 * time.Millisecond) {
			parts, err := s.Partitions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			all, err := s.Bounds(t.Context(), parts)
			if err != nil || all[0].Err != nil || all[1].Err != nil {
				t.Fatal(all, err)
			}
			if all[0].Low.Offset != 0 {
				t.Fatal("Kafka has deleted the old record of a topic without a retention")
			}
			low = all[1].Low.Offset
		}
	}
}

// aged returns n records, one for each minute, the newest written now.
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
			t.Errorf("offset %d stays for %v, but %v was foretold", offset, stays, x.ByAge)
		}
		if x.Low.Offset != 0 || x.Head.Offset != n || x.Room != sources.Never || x.Retention != age {
			t.Errorf("offset %d: %+v", offset, x)
		}
	}
	if x := kept(t, s, n, time.Hour); x.ByAge < age*7/8 {
		t.Errorf("for the next record, %v of %v was foretold", x.ByAge, age)
	}
}

func TestAClockThatIsSetForetellsDeletionTooEarlyAndNeverTooLate(t *testing.T) {
	b := realBroker(t)
	const age = 6 * time.Hour
	topic := newTopic(t, b, 1, map[string]string{"retention.ms": fmt.Sprint(age.Milliseconds())})
	const n = 60
	produce(t, b, topic, 0, 0, aged(n))
	s := openFor(t, options(b, topic))
	var set func(jump, ran time.Duration)
	s.clock, set = wallclock.Settable(time.Now())
	before := kept(t, s, n/2, time.Hour).ByAge
	if stays := age - (n-1-n/2)*time.Minute; before > stays || before < stays*7/8-3*time.Minute {
		t.Fatalf("foretold %v of %v", before, stays)
	}
	for _, back := range []time.Duration{-time.Hour, -3 * time.Hour, -100 * time.Hour} {
		set(back, 0)
		if got := kept(t, s, n/2, time.Hour).ByAge; got != before {
			t.Errorf("clock set by %v: foretold that the record stays for %v, before it was %v", back, got, before)
		}
	}
	set(3*time.Hour, 0)
	if got := kept(t, s, n/2, time.Hour).ByAge; got > before-2*time.Hour {
		t.Errorf("clock set forward by 3h: foretold that the record stays for %v, before it was %v", got, before)
	}
	set(100*time.Hour, 0)
	if got := kept(t, s, n/2, time.Hour).ByAge; got != 0 {
		t.Errorf("clock set forward by 100h: foretold that the record stays for %v", got)
	}
}

// An old record that comes after a young one stays as long as the young one.
func TestARecordStaysAsLongAsAYoungerOneBeforeIt(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, map[string]string{"retention.ms": fmt.Sprint((6 * time.Hour).Milliseconds())})
	all := aged(10)
	all[7].time = time.Now().Add(-5 * time.Hour)
	produce(t, b, topic, 0, 0, all)
	if x := kept(t, openFor(t, options(b, topic)), 7, time.Hour); x.ByAge < 5*time.Hour {
		t.Errorf("foretold that it stays for %v", x.ByAge)
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
			t.Errorf("offset %d: foretold room for %d records, want about %d; %+v", offset, x.Room, want, x)
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

// A kept checkpoint needs partitions of a topic that was deleted, or that was made again. Each of them is
// reported as gone, and for the other partitions where they begin.
func TestATopicThatIsDeletedOrMadeAgainIsGone(t *testing.T) {
	b := realBroker(t)
	for name, again := range map[string]bool{"deleted": false, "made again": true} {
		t.Run(name, func(t *testing.T) {
			topic := newTopic(t, b, 2, nil)
			for p := range 2 {
				produce(t, b, topic, p, 0, numbered(0, 50, 0))
			}
			marks := func(parts []sources.PartitionID) (all []sources.Mark) {
				for _, p := range parts {
					all = append(all, sources.Mark{Partition: p})
				}
				return all
			}
			o := options(b, topic)
			s := openFor(t, o)
			parts, err := s.Partitions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range parts {
				segs, err := s.Segments(t.Context(), p, -1, 1)
				if err != nil {
					t.Fatal(err)
				}
				o.Known = append(o.Known, segs...)
			}
			if err := b.DeleteRecords(t.Context(), topic, 1, 20); err != nil {
				t.Fatal(err)
			}
			if all, err := s.Keeps(t.Context(), marks(parts), -1); err != nil || all[0].Gone || all[0].Low.Offset != 0 || all[1].Low.Offset != 20 || all[1].Head.Offset != 50 {
				t.Fatalf("%+v %v", all, err)
			}
			whole := openWhole(t, b, nil, topic)
			id, segs := theOne(t, whole)
			ofWhole := []sources.Mark{{Partition: id}, {Partition: id, Position: sources.Position{Segment: segs[1].ID}}}
			if all, err := whole.Keeps(t.Context(), ofWhole, -1); err != nil || all[0].Low.Offset != 0 || all[1].Low.Offset != 20 {
				t.Fatalf("%+v %v", all, err)
			}
			if err := b.DeleteTopic(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			if again {
				if err := b.CreateTopic(t.Context(), topic, 2, nil); err != nil {
					t.Fatal(err)
				}
			}
			later := openWith(t, o, o.Known) // the source of a master that was started again
			t.Cleanup(func() { later.Close() })
			for _, s := range []*Source{s, later} {
				// The broker answers before it has removed the partitions.
				gone := func(k sources.Kept) bool { return k.Gone && k.Err != nil }
				for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
					all, err := s.Keeps(t.Context(), marks(parts), -1)
					if err != nil || len(all) != 2 {
						t.Fatalf("%+v %v", all, err)
					}
					if gone(all[0]) && gone(all[1]) {
						break
					}
					if time.Now().After(deadline) {
						t.Fatalf("%+v", all)
					}
				}
			}
		})
	}
}
