//go:build kafka

package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// leads waits until a broker leads the only partition, with so many replicas in sync.
//
// A broker that stands still for two seconds loses what it leads, and a busy machine may stand still for
// longer. Nothing gives it the leadership back, so leads does when it has waited for long.
func leads(t *testing.T, b *testbroker.Broker, topic string, id, inSync int) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for looks := 1; ; looks++ {
		leader, all, err := b.Leader(t.Context(), topic, 0)
		if err == nil && leader == id && len(all) >= inSync {
			return
		}
		if looks%200 == 0 && slices.Contains(all, id) {
			elect(t, b, topic, id)
		}
		if time.Now().After(deadline) {
			t.Fatalf("broker %d does not lead with %d in sync: leader %d, in sync %v, %v", id, inSync, leader, all, err)
		}
		if err := brokers.Pause(t.Context(), 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}

// elect makes a broker, 2 or 3, the leader of the only partition, which both have.
func elect(t *testing.T, b *testbroker.Broker, topic string, id int) {
	t.Helper()
	client, done := b.Client()
	defer done()
	first := []kafkago.AlterPartitionReassignmentsRequestAssignment{{PartitionID: 0, BrokerIDs: []int{id, 5 - id}}}
	_, err := client.AlterPartitionReassignments(t.Context(), &kafkago.AlterPartitionReassignmentsRequest{Topic: topic, Assignments: first, Timeout: time.Minute})
	if err == nil {
		_, err = client.ElectLeaders(t.Context(), &kafkago.ElectLeadersRequest{Topic: topic, Partitions: []int{0}, Timeout: time.Minute})
	}
	t.Logf("broker %d is made the leader of %s again (%v)", id, topic, err)
}

// The parts of this test share one cluster of three brokers, because it takes long to start. Broker 1, the
// controller, leads nothing.
func TestLeadersMoveAndHeadsDiverge(t *testing.T) {
	b, err := testbroker.StartKafka(t.Context(), testbroker.Options{Brokers: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	t.Run("a leader that moves in mid-read loses and repeats nothing", func(t *testing.T) { leadersMove(t, b) })
	t.Run("records that a new leader has replaced are told, also if its log is longer", func(t *testing.T) { headsDiverge(t, b) })
}

func topicOn(t *testing.T, b *testbroker.Broker, config map[string]string, replicas ...int) string {
	t.Helper()
	name := fmt.Sprintf("t%d-%d", os.Getpid(), topics.Add(1))
	if err := b.CreateTopicOn(t.Context(), name, [][]int{replicas}, config); err != nil {
		t.Fatal(err)
	}
	return name
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func leadersMove(t *testing.T, b *testbroker.Broker) {
	const n = 60_000
	topic := topicOn(t, b, nil, 2, 3)
	produce(t, b, topic, 0, kafkago.Lz4, numbered(0, n/2, 500))
	produce(t, b, topic, 0, 0, numbered(n/2, n/2, 500))
	leads(t, b, topic, 2, 2)
	s := openFor(t, options(b, topic))
	rng, loc := one(t, s)
	r := &reading{t: t, s: s}
	moves := 0
	r.whole(rng, loc, func(records int) {
		switch {
		case moves == 0 && records > n/4: // an orderly stop hands the leadership over
			must(t, b.Node(2).Stop())
			leads(t, b, topic, 3, 1)
			must(t, b.Node(2).Start(t.Context()))
			leads(t, b, topic, 3, 2)
			moves++
		case moves == 1 && records > n*3/4: // kill -9 does not
			must(t, b.Node(3).Kill())
			leads(t, b, topic, 2, 1)
			moves++
		}
	})
	must(t, b.Node(3).Start(t.Context()))
	if r.records != n || moves != 2 {
		t.Errorf("%d records of %d, %d moves", r.records, n, moves)
	}
	t.Logf("opened again %d times", r.again)
}

// If a broker that was behind is elected, records that were read as committed are gone. A source that
// looks at once sees that the log ends earlier. The other sources look later, when the new leader's
// log is longer than the old one, so they must compare records.
func headsDiverge(t *testing.T, b *testbroker.Broker) {
	topic := topicOn(t, b, map[string]string{"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}, 2, 3)
	produce(t, b, topic, 0, 0, numbered(0, 1000, 100))
	leads(t, b, topic, 2, 2)
	must(t, b.Node(3).Kill())
	produce(t, b, topic, 0, 0, numbered(1000, 500, 100)) // only broker 2 has them
	early, bounded := openFor(t, options(b, topic)), openFor(t, options(b, topic))
	if whole, _ := one(t, early); whole.End != 1500 {
		t.Fatalf("the range is %+v, want one that ends at 1500", whole)
	}
	whole, loc := one(t, bounded)
	endless := options(b, topic)
	endless.End = End{At: brokers.Never}
	live := openFor(t, endless)
	read := whole
	read.End = 1200
	for _, s := range []*Source{bounded, live} {
		asked(t, func() ([]sources.Bounds, error) {
			return s.Bounds(t.Context(), []sources.PartitionID{whole.Partition})
		})
		(&reading{t: t, s: s}).whole(read, loc, func(int) {})
		if found := asked(t, func() ([]sources.Replaced, error) { return s.Compare(t.Context()) }); len(found) > 0 {
			t.Errorf("before the election: %+v", found)
		}
	}
	must(t, b.Node(2).Kill())
	must(t, b.Node(3).Start(t.Context()))
	leads(t, b, topic, 3, 1)
	t.Run("a head that falls behind what was planned is told", func(t *testing.T) { headFell(t, early, whole, loc) })

	produce(t, b, topic, 0, 0, numbered(5000, 1000, 100)) // at offset 1000 and on

	for name, s := range map[string]*Source{"bounded": bounded, "live": live} {
		bounds := asked(t, func() ([]sources.Bounds, error) {
			return s.Bounds(t.Context(), []sources.PartitionID{whole.Partition})
		})
		if bounds[0].Head.Offset != 2000 {
			t.Errorf("%s: %+v", name, bounds)
		}
		found := asked(t, func() ([]sources.Replaced, error) { return s.Compare(t.Context()) })
		if len(found) != 1 || found[0] != (sources.Replaced{Partition: whole.Partition, From: 1000, Before: 1500}) {
			t.Errorf("%s: replaced are %+v", name, found)
		}
		if found := asked(t, func() ([]sources.Replaced, error) { return s.Compare(t.Context()) }); len(found) > 0 {
			t.Errorf("%s: reported again: %+v", name, found)
		}
		// The broker tells a reader that goes on where it has stopped.
		r := &reading{t: t, s: s, next: 1200}
		rest := whole
		rest.Start = 1200
		err := r.attempt(rest, loc, func(int) {})
		for again := (*sources.Temporary)(nil); errors.As(err, &again); {
			must(t, brokers.Pause(t.Context(), again.Backoff))
			err = r.attempt(rest, loc, func(int) {})
		}
		var diverged *sources.Diverged
		if !errors.As(err, &diverged) || diverged.Head != 1000 || r.records > 0 {
			t.Errorf("%s: %d records, then %v", name, r.records, err)
		}
	}

	// An election that loses no record stops nothing.
	must(t, b.Node(2).Start(t.Context()))
	leads(t, b, topic, 3, 2)
	s := openFor(t, options(b, topic))
	whole, loc = one(t, s)
	r := &reading{t: t, s: s}
	moved := false
	r.whole(whole, loc, func(records int) {
		if !moved && records >= 500 {
			moved = true
			must(t, b.Node(3).Stop())
			leads(t, b, topic, 2, 1)
			must(t, b.Node(3).Start(t.Context()))
		}
	})
	if _, err := s.Bounds(t.Context(), []sources.PartitionID{whole.Partition}); err != nil {
		t.Fatal(err)
	}
	if found := asked(t, func() ([]sources.Replaced, error) { return s.Compare(t.Context()) }); len(found) > 0 || r.records != 2000 || !moved {
		t.Errorf("%d records, replaced are %+v", r.records, found)
	}
}

// headFell reads a range that was planned to 1500. The new leader's log ends at 1000.
func headFell(t *testing.T, s *Source, whole sources.Range, loc []byte) {
	r := &reading{t: t, s: s}
	var err error
	for deadline := time.Now().Add(5 * time.Minute); ; {
		err = r.attempt(whole, loc, func(int) {})
		var again *sources.Temporary
		if !errors.As(err, &again) || time.Now().After(deadline) {
			break
		}
		must(t, brokers.Pause(t.Context(), again.Backoff))
	}
	var diverged *sources.Diverged
	if !errors.As(err, &diverged) || errors.Is(err, io.EOF) || diverged.Head != 1000 || diverged.Range.End != 1500 {
		t.Errorf("got %v, want Diverged with head 1000 and a range that ends at 1500", err)
	}
	if r.records != 1000 {
		t.Errorf("%d records before it", r.records)
	}
	// The master notices it, too, when it looks at the head.
	bounds, err := s.Bounds(context.WithoutCancel(t.Context()), []sources.PartitionID{whole.Partition})
	if err != nil || !slices.ContainsFunc(bounds, func(b sources.Bounds) bool { return b.Head.Offset == 1000 }) {
		t.Errorf("%+v (%v)", bounds, err)
	}
}

// asked asks until the answer is not a temporary error.
func asked[T any](t testing.TB, ask func() (T, error)) T {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		answer, err := ask()
		var again *sources.Temporary
		if err == nil {
			return answer
		}
		if !errors.As(err, &again) || time.Now().After(deadline) {
			t.Fatal(err)
		}
		if err := brokers.Pause(t.Context(), again.Backoff); err != nil {
			t.Fatal(err)
		}
	}
}
