//go:build pulsar

package pulsar

import (
	"fmt"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

func writeTo(t testing.TB, b *testbroker.Pulsar, topic string, partitions, from, n int) {
	t.Helper()
	p := &place{b: b, topic: topic, partitions: partitions, rng: newRand()}
	var all [][]byte
	for i := range n {
		all = append(all, fmt.Appendf(nil, "%d", from+i))
	}
	p.Produce(t, all)
}

func cursorOf(t testing.TB, b *testbroker.Pulsar, topic, name string) (messageAt, bool) {
	t.Helper()
	var l layout
	stats(t, b, topic, &l.internalStats)
	m, ok, err := l.cursor(name)
	if err != nil {
		t.Fatal(err)
	}
	return m, ok
}

// The broker deletes everything that no subscription needs. It keeps what our subscription retains, and
// deletes the rest. Release removes both of our subscriptions.
func TestTheSubscriptionRetainsAndIsReleased(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 0)
	admincall(t, b, "POST", "namespaces/public/default/retention", map[string]int{"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
	t.Cleanup(func() {
		admincall(t, b, "POST", "namespaces/public/default/retention", map[string]int{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
	})
	o := (&place{b: b, topic: topic, max: 1000}).options(brokers.Latest)
	o.Retain, o.Progress = "x-retain", "x"
	s := mustOpen(t, o)
	defer s.Close()
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time changes nothing
		if err := s.Begin(t.Context(), ids); err != nil {
			t.Fatal(err)
		}
	}
	for k := range 4 {
		writeTo(t, b, topic, 0, k*30, 30)
		admincall(t, b, "PUT", "persistent/public/default/"+topic+"/unload", nil)
	}
	segs := sourcetestSegments(t, s, ids[0])
	if len(segs) != 4 {
		t.Fatalf("%d segments after 4 ledgers, so the subscription has not kept them: %+v", len(segs), segs)
	}
	mark := func(k int) []sources.Mark {
		return []sources.Mark{{Partition: ids[0], Position: sources.Position{Segment: segs[k].ID, Offset: segs[k].Start}}}
	}
	if err := s.Commit(t.Context(), mark(3)); err != nil {
		t.Fatal(err)
	}
	if m, _ := cursorOf(t, b, topic, "x"); m.Ledger < ledgerOf(segs[2].ID) {
		t.Errorf("progress is at %s, but ledger %d was committed", m, ledgerOf(segs[3].ID))
	}
	if err := s.Commit(t.Context(), mark(1)); err != nil {
		t.Fatal(err)
	}
	if m, _ := cursorOf(t, b, topic, "x"); m.Ledger < ledgerOf(segs[2].ID) {
		t.Errorf("progress went back to %s", m)
	}
	back := mark(1)
	back[0].Back = true
	if err := s.Commit(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	if m, _ := cursorOf(t, b, topic, "x"); m.Ledger > ledgerOf(segs[1].ID) {
		t.Errorf("progress did not go back, it is at %s", m)
	}
	if err := s.Commit(t.Context(), mark(3)); err != nil {
		t.Fatal(err)
	}
	// Ledgers before the mark may be deleted.
	if err := s.Retain(t.Context(), mark(2)); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(5 * time.Minute)
	for {
		var now internalStats
		stats(t, b, topic, &now)
		if first := now.Ledgers[0].Ledger; first == ledgerOf(segs[1].ID) {
			break
		} else if first > ledgerOf(segs[1].ID) || time.Now().After(deadline) {
			t.Fatalf("the first ledger is still %d, but only those from %d on are retained", first, ledgerOf(segs[1].ID))
		}
		_, _ = b.Admin(t.Context(), "POST", "persistent/public/default/"+topic+"/trim", nil)
		time.Sleep(50 * time.Millisecond)
	}
	for range 2 {
		if err := s.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"x", "x-retain"} {
		if _, there := cursorOf(t, b, topic, name); there {
			t.Errorf("subscription %s is still there after Release", name)
		}
	}
	// One topic of the dataset is deleted, and another one is still there.
	other := newTopic(t, b, 0)
	o.Topics = []string{topic, other}
	all := mustOpen(t, o)
	defer all.Close()
	if ids, err = all.Partitions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := all.Begin(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	deleteTopic(t, b, topic, 0)
	fresh := mustOpen(t, o) // as the master does
	defer fresh.Close()
	if err := fresh.Release(t.Context()); err != nil {
		t.Errorf("Release with a deleted topic: %v", err)
	}
	if _, there := cursorOf(t, b, other, "x-retain"); there {
		t.Error("the other topic's subscription is still there after Release")
	}
	if text, err := b.Admin(t.Context(), "GET", "persistent/public/default/"+topic+"/internalStats", nil); err == nil {
		t.Errorf("Release has created the deleted topic again: %s", text)
	}
}

// sourcetestSegments tries again, as a master does, because Pulsar may still be loading the topic.
func sourcetestSegments(t testing.TB, s *Source, id sources.PartitionID) []sources.Segment {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		all, err := s.Segments(t.Context(), id, -1, 100)
		if err == nil {
			return all
		}
		if !isTemporary(err) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// A new subscription must not be after the place where it begins, not even for a moment, because its broker
// may be killed at that moment.
func TestASubscriptionKeepsEverythingFromItsFirstMomentOn(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	const partitions = 24
	topic := newTopic(t, b, partitions)
	writeTo(t, b, topic, partitions, 0, 20*partitions)
	o := (&place{b: b, topic: topic, max: 1000}).options(brokers.Never)
	o.Retain, o.Progress = "x-retain", "x"
	s := mustOpen(t, o)
	defer s.Close()
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Begin(t.Context(), ids) }() // its end is awaited below
	for looking := true; looking; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			looking = false
		default:
		}
		for _, name := range partitionNames(topic, partitions) {
			for _, sub := range []string{o.Retain, o.Progress} {
				at, there := cursorOf(t, b, name, sub)
				if there && at.Entry > 0 {
					t.Fatalf("subscription %s of %s is at %s, want entry 0", sub, name, at)
				}
				if !looking && !there {
					t.Errorf("subscription %s of %s is not there", sub, name)
				}
			}
		}
	}
}
