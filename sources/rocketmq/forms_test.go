//go:build rocketmq

package rocketmq

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// A topic has 100 messages in each of two queues. The first 50 of each queue were stored before the others.
// Each form of start and end that docs/rocketmq.md shows reads its part.
func TestEachFormOfStartAndEndReadsItsPart(t *testing.T) {
	b, _ := realBroker(t)
	topic := newTopic(t, b, 2)
	to := b.NewAppender(topic)
	defer to.Close()
	half := func(from int64) {
		t.Helper()
		for q := range 2 {
			var some [][]byte
			for i := range int64(50) {
				some = append(some, fmt.Append(nil, q, "/", from+i))
			}
			if err := to.Append(t.Context(), q, from, some, func() {}); err != nil {
				t.Fatal(err)
			}
			if end, err := to.End(t.Context(), q); err != nil || end != from+50 {
				t.Fatalf("queue %d ends at %d (%v)", q, end, err)
			}
		}
	}
	probe := openFor(t, options(b, topic))
	if _, err := probe.Partitions(t.Context()); err != nil {
		t.Fatal(err)
	}
	storedAt := func(queue int, offset int64) time.Time {
		t.Helper()
		m, _, err := probe.one(t.Context(), partition{"c1", b.Name(), topic, queue}, offset)
		if err != nil {
			t.Fatal(err)
		}
		return time.UnixMilli(m.stored)
	}
	half(0)
	for last := storedAt(1, 49); !time.Now().After(last.Add(time.Millisecond)); time.Sleep(time.Millisecond) { // until the next millisecond; the broker uses the same clock
	}
	half(50)
	middle := storedAt(0, 50).UTC().Format(time.RFC3339Nano)
	later := storedAt(1, 99).Add(time.Hour).UTC().Format(time.RFC3339)

	all := [2]int64{0, 100}
	for fields, want := range map[string][2][2]int64{ // want: start and end for each queue
		"":                              {all, all},
		"start: earliest":               {all, all},
		"start: latest":                 {{100, 100}, {100, 100}},
		"start: " + middle:              {{50, 100}, {50, 100}},
		"start: " + later:               {{100, 100}, {100, 100}},
		"end: latest":                   {all, all},
		"end: " + middle:                {{0, 50}, {0, 50}},
		"end: " + later:                 {all, all},
		"start_offsets: {0: 10}":        {{10, 100}, all},
		"start_offsets: {b0/1: 20}":     {all, {20, 100}},
		"end_offsets: {TOPIC/b0/0: 30}": {{0, 30}, all},
		"start: latest, start_offsets: {0: 10, TOPIC/b0/1: 99}, end_offsets: {b0/0: 12}": {{10, 12}, {99, 100}},
		"end: " + middle + ", end_offsets: {1: 70}":                                      {{0, 50}, {0, 70}},
		"start: " + middle + ", end: never":                                              {{50, 100}, {50, 100}},
		"start: latest, end: never":                                                      {{100, 100}, {100, 100}},
		"end: never, start_offsets: {b0/0: 7}":                                           {{7, 100}, all},
		"brokers: [b0]":                                                                  {all, all},
	} {
		t.Run(fields, func(t *testing.T) {
			text := fmt.Sprintf("name: d\nrocketmq: {name_servers: [%q], topic: %s, %s}\ndecode: lines\n", b.NameServer(), topic, strings.ReplaceAll(fields, "TOPIC", topic))
			spec, err := parse(text)
			if err != nil {
				t.Fatal(err)
			}
			src, err := openSpec(spec, dataset.Opening{})
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			ids, err := src.Partitions(t.Context())
			if err != nil || len(ids) != 2 {
				t.Fatalf("%v (%v)", ids, err)
			}
			for q, id := range ids {
				segs, err := src.Segments(t.Context(), id, -1, 10)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, g := range segs {
					cur, err := src.Open(t.Context(), sources.Range{Partition: id, Segment: g.ID, Start: g.Start, End: g.End}, sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
					if err != nil {
						t.Fatal(err)
					}
					var batch sources.Batch
					for cur.Next(t.Context(), &batch) == nil {
						for _, r := range batch.Recs {
							got = append(got, string(batch.Arena[r.Value[0]:r.Value[1]]))
						}
					}
					cur.Close()
				}
				var expected []string
				for i := want[q][0]; i < want[q][1]; i++ {
					expected = append(expected, fmt.Sprint(q, "/", i))
				}
				if !slices.Equal(got, expected) {
					t.Errorf("queue %d: %v, want [%d, %d)", q, got, want[q][0], want[q][1])
				}
			}
		})
	}
}

// A broker that creates no groups by itself refuses the pulls of a group that it does not know.
func TestABrokerThatMakesNoGroupsIsToldWithTheCommandThatMakesOne(t *testing.T) {
	b, p := realBroker(t)
	topic := newTopic(t, b, 1)
	send(t, p, b.RocketBroker, topic, 0, primitive.NewMessage(topic, []byte("x")))
	holds(t, b.RocketBroker, topic, 1)
	makes := func(groups bool) {
		if err := b.Client().SetConfig(t.Context(), b.Addr(), map[string]string{"autoCreateSubscriptionGroup": fmt.Sprint(groups)}); err != nil {
			t.Fatal(err)
		}
	}
	makes(false)
	defer makes(true)
	o := options(b, topic)
	o.Group = "g-" + topic
	s := openFor(t, o)
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, listing := s.Segments(t.Context(), ids[0], -1, 1)
	cur, err := s.Open(t.Context(), sources.Range{Partition: ids[0], End: 1}, sources.Position{}, partition{"c1", b.Name(), topic, 0}.locator(print{}))
	if err != nil {
		t.Fatal(err)
	}
	defer cur.Close()
	var batch sources.Batch
	reading := cur.Next(t.Context(), &batch)
	for what, err := range map[string]error{"listing": listing, "reading": reading} {
		_, again := errors.AsType[*sources.Temporary](err)
		if err == nil || again {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for _, word := range []string{topic + "/b0/0", "offset 0", "code 26", `"` + o.Group + `"`, "mqadmin updateSubGroup -n " + b.NameServer() + " -c CLUSTER -g " + o.Group} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", what, err, word)
			}
		}
	}
	// mqadmin ends with status 0 when the broker did not answer in its 5 seconds, too.
	for deadline := time.Now().Add(5 * time.Minute); ; {
		out, err := b.Admin(t.Context(), "updateSubGroup", "-c", "c1", "-g", o.Group)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out, "success") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("mqadmin made no group:\n%s", out)
		}
	}
	if got := everything(t, openFor(t, o)); len(got) != 1 {
		t.Errorf("with the group: %d records", len(got))
	}
}
