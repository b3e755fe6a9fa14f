//go:build kafka

package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
	"github.com/headrace/headrace/sources/sourcetest"
)

// A bounded topic without a record has no segment. A live one has a segment, whose reader waits.
func TestATopicWithoutARecordEndsAtOnceOrWaits(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	s := openFor(t, options(b, topic))
	parts, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if segs, err := s.Segments(t.Context(), parts[0], -1, 2); err != nil || len(segs) != 0 {
		t.Errorf("a topic without a record has segments %v (%v)", segs, err)
	}
	bounds, err := s.Bounds(t.Context(), parts)
	if err != nil || bounds[0].Err != nil || bounds[0].Low != bounds[0].Head || !bounds[0].Bounded {
		t.Errorf("a topic without a record has bounds %+v (%v)", bounds, err)
	}
	lines := tail(t, openFor(t, liveOptions(options(b, topic))))
	select {
	case text := <-lines:
		t.Fatalf("%q was read, but nothing was written", text)
	case <-time.After(2 * tailWait * time.Millisecond):
	}
	all := numbered(0, 1, 0)
	produce(t, b, topic, 0, 0, all)
	if text := next(t, lines); text != string(all[0].value) {
		t.Errorf("%q was read, want the record that was written", text)
	}
}

// A start in the future means the head as it is now: no earlier record is read, and each later one is,
// whatever its time.
func TestAStartInTheFutureIsNow(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	produce(t, b, topic, 0, 0, numbered(0, 10, 0))
	o := liveOptions(options(b, topic))
	o.Start = End{At: brokers.AtTime, Time: time.Now().Add(time.Hour)}
	lines := tail(t, openFor(t, o))
	all := numbered(10, 1, 0)
	produce(t, b, topic, 0, 0, all)
	if text := next(t, lines); text != string(all[0].value) {
		t.Errorf("the first record is %q", text)
	}
}

// A very large record is delivered, or the error names it and the setting that allows it. Records before
// it are delivered either way.
func TestAHundredMegabytesAreOneRecordOrTooLarge(t *testing.T) {
	// A broker takes up to 100 MiB in one request, and keeps the record in memory several times. That would
	// end the broker that other tests share.
	const large = 100_000_000
	b, err := testbroker.StartKafka(t.Context(), testbroker.Options{HeapMiB: 1536, Steady: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	topic := newTopic(t, b, 1, map[string]string{"max.message.bytes": fmt.Sprint(100 << 20)})
	produce(t, b, topic, 0, 0, numbered(0, 3, 0))
	value := bytes.Repeat([]byte("headrace"), large/8)
	client, done := b.Client()
	defer done()
	client.Timeout = 5 * time.Minute
	res, err := client.Produce(t.Context(), &kafkago.ProduceRequest{Topic: topic, RequiredAcks: kafkago.RequireAll,
		Records: kafkago.NewRecordReader(kafkago.Record{Value: kafkago.NewBytes(value)})})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		t.Fatalf("the broker does not take it: %v", err)
	}
	read := func(limit int64) ([]sourcetest.Got, error) {
		o := options(b, topic)
		o.MaxRecord = limit
		s := openFor(t, o)
		r, loc := one(t, s)
		return sourcetest.Read(t.Context(), s, r, at(r), loc)
	}
	got, err := read(16 << 20)
	var tooLarge *sources.TooLarge
	if !errors.As(err, &tooLarge) || len(got) != 3 || tooLarge.Position.Offset != 3 || tooLarge.Limit != 16<<20 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	for _, want := range []string{topic + "/0", "offset 3", fmt.Sprint(16 << 20), "max_record"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q: %v", want, err)
		}
	}
	if got, err = read(128 << 20); err != nil || len(got) != 4 {
		t.Errorf("%d records, %v", len(got), err)
	}
}
