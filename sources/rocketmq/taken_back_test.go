//go:build rocketmq

package rocketmq

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// A broker's machine loses power, and with it the last messages. Producers send others before anybody looks.
// The master learns which offsets have other messages now, and so does a reader that has read the lost ones.
func TestMessagesThatABrokerLostAndOthersReplaceAreTold(t *testing.T) {
	b, err := testbroker.StartRocketMQ(t.Context(), testbroker.RocketMQOptions{Set: small})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	topic := newTopic(t, b, 1)
	to := b.NewAppender(topic)
	defer to.Close()
	end := int64(0)
	write := func(round string, n int) {
		t.Helper()
		for ; n > 0; n -= 1000 {
			var some [][]byte
			for i := range 1000 {
				some = append(some, fmt.Appendf(nil, "%s %d", round, end+int64(i)))
			}
			if err := to.Append(t.Context(), 0, end, some, func() {}); err != nil {
				t.Fatal(err)
			}
			end += 1000
		}
		holds(t, b.RocketBroker, topic, end)
	}
	o := options(b, topic)
	o.End.At = brokers.Never
	s := openFor(t, o)
	ids, err := s.Partitions(t.Context())
	if err != nil || len(ids) != 1 {
		t.Fatalf("%v (%v)", ids, err)
	}
	look := func() []sources.Replaced {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(retryAfter) {
			bounds, err := s.Bounds(t.Context(), ids)
			if err == nil {
				err = bounds[0].Err
			}
			var found []sources.Replaced
			if err == nil {
				found, err = s.Compare(t.Context())
			}
			if err == nil {
				return found
			}
			if _, again := errors.AsType[*sources.Temporary](err); !again || time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	write("kept", 3000)
	if found := look(); len(found) > 0 {
		t.Fatalf("%+v is reported as replaced, but nothing was", found)
	}
	lose, err := b.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found := look(); len(found) > 0 {
		t.Fatalf("a broker was killed and has lost nothing, but replaced ranges are reported: %+v", found)
	}
	write("lost", 5000)
	if found := look(); len(found) > 0 {
		t.Fatalf("%+v is reported as replaced, but nothing was", found)
	}
	segs, err := s.Segments(t.Context(), ids[0], -1, 1)
	if err != nil || len(segs) != 1 {
		t.Fatalf("%+v (%v)", segs, err)
	}
	rng := sources.Range{Partition: ids[0], Segment: segs[0].ID, Start: 0, End: 100_000}
	cur, err := s.Open(t.Context(), rng, sources.Position{}, segs[0].Locator)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := next(t.Context(), cur, 8000); n != 8000 || err != nil {
		t.Fatalf("%d messages (%v)", n, err)
	}

	if err := lose(t.Context()); err != nil {
		t.Fatal(err)
	}
	end = 3000
	write("others", 6000)
	if found := look(); len(found) != 1 || found[0] != (sources.Replaced{Partition: ids[0], From: 3000, Before: 8000}) {
		t.Errorf("the master is told %+v", found)
	}
	if found := look(); len(found) > 0 {
		t.Errorf("the ranges are reported again: %+v", found)
	}
	for deadline := time.Now().Add(5 * time.Minute); ; {
		var n int
		n, err = next(t.Context(), cur, 1)
		if n > 0 || err == io.EOF {
			t.Fatalf("the reader goes on although it has read lost messages: %d messages (%v)", n, err)
		}
		if _, again := errors.AsType[*sources.Temporary](err); !again || time.Now().After(deadline) {
			break
		}
		cur.Close()
		if cur, err = s.Open(t.Context(), rng, sources.Position{Offset: 8000}, segs[0].Locator); err != nil {
			t.Fatal(err)
		}
	}
	cur.Close()
	if diverged, is := errors.AsType[*sources.Diverged](err); !is || diverged.Head > 3000 || diverged.Head == 0 {
		t.Errorf("the reader returns %v", err)
	}
}
