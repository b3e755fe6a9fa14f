//go:build kafka

package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

func openWhole(t *testing.T, b *testbroker.Broker, known []sources.Segment, topics ...string) *Whole {
	t.Helper()
	o := options(b, topics...)
	o.Known = known
	w, err := newWhole(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// theOne returns the only partition and all its segments.
func theOne(t *testing.T, w *Whole) (sources.PartitionID, []sources.Segment) {
	t.Helper()
	parts, err := w.Partitions(t.Context())
	if err != nil || len(parts) != 1 {
		t.Fatal(parts, err)
	}
	return parts[0], sourcetest.Segments(t, w, parts[0], 2)
}

func shown(segs []sources.Segment) string {
	var all []string
	for _, g := range segs {
		name := g.Name[strings.LastIndexByte(g.Name, '/'):]
		all = append(all, fmt.Sprintf("%d %s [%d,%d) %v", g.ID, name, g.Start, g.End, g.Sealed))
	}
	return strings.Join(all, "; ")
}

// bit_exact: "Which batches a step has is a function of the input". So segments that were listed once stay
// the same, whatever is produced or created later.
func TestTopicsAreOneSequenceWhoseSegmentsStay(t *testing.T) {
	b := realBroker(t)
	one, two := newTopic(t, b, 3, nil), newTopic(t, b, 1, nil)
	produce(t, b, one, 0, 0, numbered(0, 100, 0))
	produce(t, b, one, 2, 0, numbered(100, 50, 0))
	produce(t, b, two, 0, 0, numbered(150, 10, 0))

	id, segs := theOne(t, openWhole(t, b, nil, two, one))
	if got, want := shown(segs), "0 /0 [0,10) true; 1 /0 [0,100) true; 2 /2 [0,50) true"; got != want {
		t.Fatalf("listed %s, want %s: in the order of the spec, the empty partition left out", got, want)
	}

	produce(t, b, one, 0, 0, numbered(160, 100, 0))
	produce(t, b, one, 1, 0, numbered(260, 100, 0))
	// A master that died in the middle of the listing goes on after the segments that are durable.
	again := openWhole(t, b, segs[:1], two, one)
	same, rest := theOne(t, again)
	if got, want := shown(rest), "0 /0 [0,10) true; 1 /0 [0,200) true; 2 /1 [0,100) true; 3 /2 [0,50) true"; got != want || same != id {
		t.Fatalf("listed %s of %s, want %s of %s", got, same, want, id)
	}
	if got, want := shown(sourcetest.Segments(t, again, id, 10)), shown(rest); got != want {
		t.Errorf("the second time it listed %s, the first %s", got, want)
	}

	var read []string
	for _, g := range segs {
		r := sources.Range{Partition: id, Segment: g.ID, Start: g.Start, End: g.End}
		got, err := sourcetest.Read(t.Context(), again, r, sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, fmt.Sprintf("%s to %s", got[0].Value, got[len(got)-1].Value))
	}
	want := []string{}
	for _, r := range [][2]int{{150, 159}, {0, 99}, {100, 149}} {
		first, last := numbered(r[0], 1, 0), numbered(r[1], 1, 0)
		want = append(want, fmt.Sprintf("%s to %s", first[0].value, last[0].value))
	}
	if fmt.Sprint(read) != fmt.Sprint(want) {
		t.Errorf("read %v, want %v", read, want)
	}
}

func TestWhatIsLostOfASequenceIsToldByItsTopicAndOffsets(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 2, nil)
	produce(t, b, topic, 1, 0, numbered(0, 100, 0))
	w := openWhole(t, b, nil, topic)
	id, segs := theOne(t, w)
	if err := b.DeleteRecords(t.Context(), topic, 1, 60); err != nil {
		t.Fatal(err)
	}
	r := sources.Range{Partition: id, Segment: segs[0].ID, Start: 20, End: 80}
	_, err := sourcetest.Read(t.Context(), w, r, sources.Position{Offset: 20}, segs[0].Locator)
	var lost *sources.Truncated
	if !errors.As(err, &lost) || lost.Lost.Start != 20 || lost.Lost.End != 60 || lost.Name != topic+"/1" {
		t.Errorf("it says %v", err)
	}
}

func TestASequenceOfATopicMadeAgainIsAnother(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	produce(t, b, topic, 0, 0, numbered(0, 10, 0))
	id, segs := theOne(t, openWhole(t, b, nil, topic))
	if err := b.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Minute); ; {
		err := b.CreateTopic(t.Context(), topic, 1, nil)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	var changed *sources.Changed
	if _, err := openWhole(t, b, segs, topic).Partitions(t.Context()); !errors.As(err, &changed) {
		t.Errorf("with the old segments it says %v", err)
	}
	if now, _ := theOne(t, openWhole(t, b, nil, topic)); now == id {
		t.Errorf("it is %s as before", now)
	}
}

func TestASequenceOfACompactedTopicIsRefused(t *testing.T) {
	b := realBroker(t)
	for _, policy := range []string{"compact", "compact,delete"} {
		topic := newTopic(t, b, 1, map[string]string{"cleanup.policy": policy})
		_, err := openWhole(t, b, nil, topic).Partitions(t.Context())
		if err == nil || !strings.Contains(err.Error(), topic+" is compacted") {
			t.Errorf("%s: got the error %v, want one with %q", policy, err, topic+" is compacted")
		}
	}
}
