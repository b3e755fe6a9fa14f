//go:build kafka

package kafka

import (
	"errors"
	"io"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// reading reads as an agent does: after a temporary error it opens another cursor where it was.
type reading struct {
	t       *testing.T
	s       *Source
	next    int64
	again   int
	records int
}

func (r *reading) whole(rng sources.Range, loc []byte, between func(records int)) {
	r.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		err := r.attempt(rng, loc, between)
		var again *sources.Temporary
		if errors.Is(err, io.EOF) {
			return
		}
		if !errors.As(err, &again) || time.Now().After(deadline) {
			r.t.Fatalf("at %d: %v", r.next, err)
		}
		r.again++
		if err := brokers.Pause(r.t.Context(), again.Backoff); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *reading) attempt(rng sources.Range, loc []byte, between func(records int)) error {
	c, err := r.s.Open(r.t.Context(), rng, sources.Position{Offset: r.next}, loc)
	if err != nil {
		return err
	}
	defer c.Close()
	var b sources.Batch
	for {
		if err := c.Next(r.t.Context(), &b); err != nil {
			return err
		}
		for _, rec := range b.Recs {
			if rec.Offset != r.next {
				r.t.Fatalf("read offset %d, want %d", rec.Offset, r.next)
			}
			r.next = rec.Next
			r.records++
		}
		r.next = b.End
		between(r.records)
	}
}

func TestABrokerThatIsDownIsWaitedForAndOneThatIsKilledInMidReadLosesNothing(t *testing.T) {
	b, err := testbroker.StartKafka(t.Context(), testbroker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const n = 60_000
	topic := newTopic(t, b, 1, nil)
	produce(t, b, topic, 0, kafkago.Lz4, numbered(0, n/2, 500))
	produce(t, b, topic, 0, 0, numbered(n/2, n/2, 500))
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}

	s := openFor(t, options(b, topic))
	began := time.Now()
	var again *sources.Temporary
	if _, err := s.Partitions(t.Context()); !errors.As(err, &again) {
		t.Errorf("listing while the broker is down: %v", err)
	}
	if took := time.Since(began); took > 5*time.Minute {
		t.Errorf("the error came only after %v", took)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rng sources.Range
	var loc []byte
	for deadline := time.Now().Add(5 * time.Minute); ; {
		parts, err := s.Partitions(t.Context())
		if err == nil {
			_, err = s.Segments(t.Context(), parts[0], -1, 1)
		}
		if err == nil {
			rng, loc = one(t, s)
			break
		} else if !errors.As(err, &again) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}

	r := &reading{t: t, s: s}
	killed := 0
	r.whole(rng, loc, func(records int) {
		if records > n/4 && killed == 0 || records > n*3/4 && killed == 1 {
			killed++
			if err := b.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := b.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
	if r.records != n || killed != 2 {
		t.Errorf("%d records of %d, %d kills", r.records, n, killed)
	}
	t.Logf("opened again %d times", r.again)
}

func TestCommitsGrowOnlyAndNeedNoMember(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 2, nil)
	produce(t, b, topic, 0, 0, numbered(0, 100, 0))
	o := options(b, topic)
	o.Group = "g-" + topic // a new group: its coordinator is not ready at first
	s := openFor(t, o)
	parts, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	commit := func(offset int64, want ...int64) {
		t.Helper()
		if err := s.Commit(t.Context(), []sources.Mark{{Partition: parts[0], Position: sources.Position{Offset: offset}}}); err != nil {
			t.Fatal(err)
		}
		client, done := b.Client()
		defer done()
		res, err := client.OffsetFetch(t.Context(), &kafkago.OffsetFetchRequest{GroupID: o.Group, Topics: map[string][]int{topic: {0, 1}}})
		if err != nil || res.Error != nil {
			t.Fatal(err, res)
		}
		for i, w := range want {
			if got := res.Topics[topic][i].CommittedOffset; got != w {
				t.Errorf("partition %d is committed at %d, want %d", i, got, w)
			}
		}
	}
	commit(40, 40, -1)
	commit(70, 70, -1)
	commit(50, 70, -1)
	commit(100, 100, -1)
	if err := openFor(t, options(b, topic)).Commit(t.Context(), nil); err == nil {
		t.Error("committed without a group")
	}
}
