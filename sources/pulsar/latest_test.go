//go:build pulsar

package pulsar

import (
	"context"
	"errors"
	"testing"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// The end of a topic moves while the source looks for it. A live dataset that begins there still has a first
// segment, which does not begin after its own end.
func TestTheEndOfATopicThatIsBeingWrittenIsAPlaceToBeginAt(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 0)
	p := producer(t, client.ProducerOptions{Topic: topic, DisableBatching: true})
	send(t, p, &client.ProducerMessage{Payload: []byte("first")})
	done, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with the test
		defer close(ended)
		for {
			select {
			case <-done:
				_ = p.FlushWithCtx(t.Context())
				return
			default:
				p.SendAsync(t.Context(), &client.ProducerMessage{Payload: []byte("more")}, func(client.MessageID, *client.ProducerMessage, error) {})
			}
		}
	}()
	defer func() { close(done); <-ended }()
	o := (&place{b: b, topic: topic, max: 1000}).options(brokers.Never)
	o.Start = End{At: brokers.Latest}
	for range 50 {
		s := mustOpen(t, o)
		ids, err := s.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all := sourcetestSegments(t, s, ids[0])
		if len(all) == 0 {
			t.Fatal("no segment is listed")
		}
		if last := all[len(all)-1]; last.Sealed || all[0].Start > all[0].End {
			t.Fatalf("it is listed as %+v", all)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// When a ledger is full, Pulsar begins a new one, which may stay empty for hours. A reader that waits there
// must say so. Otherwise its stream asks for no other partition.
func TestAReaderOfALedgerWithoutAMessageSaysThatItWaits(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	s := mustOpen(t, (&place{b: b, topic: newTopic(t, b, 0), max: 1000}).options(brokers.Never))
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := sourcetestSegments(t, s, ids[0])[0]
	if g.Sealed || g.End > g.Start {
		t.Fatalf("the topic has no message, and is listed as %+v", g)
	}
	c, err := s.Open(t.Context(), sources.Range{Partition: ids[0], Segment: g.ID, Start: g.Start, End: g.Start + 1<<40}, sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	heads, ended := make(chan int64, 1), make(chan error, 1)
	c.(sources.Tailing).OnHead(func(head int64) { heads <- head })
	go func() { ended <- c.Next(ctx, &sources.Batch{}) }()
	select {
	case head := <-heads:
		if head != g.Start {
			t.Errorf("the reader says that the head is %d, but it waits at %d", head, g.Start)
		}
	case err := <-ended:
		t.Errorf("it ends with %v", err)
	case <-time.After(5 * time.Minute):
		t.Error("for five minutes the cursor has not said that it waits")
	}
	cancel()
	<-ended
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

// A cursor that has read everything says that it waits, also if the last head that it saw was after a record
// that it had not read yet. Otherwise its stream would ask for no other partition.
func TestACursorThatHasReadAllSaysThatItWaits(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 0)
	send(t, producer(t, client.ProducerOptions{Topic: topic, DisableBatching: true}), &client.ProducerMessage{Payload: []byte("one")})
	o := (&place{b: b, topic: topic, max: 1000}).options(brokers.Never)
	s := mustOpen(t, o)
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := sourcetestSegments(t, s, ids[0])[0]
	c, err := s.Open(t.Context(), sources.Range{Partition: ids[0], Segment: g.ID, Start: g.Start, End: g.Start + 1<<40}, sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
	if err != nil {
		t.Fatal(err)
	}
	c.(sources.Tailing).OnHead(func(int64) {})
	read := &sources.Batch{}
	if err := c.Next(t.Context(), read); err != nil || len(read.Recs) != 1 {
		t.Fatalf("%d records, %v", len(read.Recs), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	heads, ended := make(chan int64, 1), make(chan error, 1)
	c.(sources.Tailing).OnHead(func(head int64) {
		select {
		case heads <- head:
		default:
		}
	})
	go func() { ended <- c.Next(ctx, &sources.Batch{}) }()
	select {
	case head := <-heads:
		if head > read.End {
			t.Errorf("the cursor says that the head is %d, but it waits at %d", head, read.End)
		}
	case err := <-ended:
		t.Errorf("it ends with %v", err)
	case <-time.After(5 * time.Minute):
		t.Error("for five minutes the cursor has not said that it waits")
	}
	cancel()
	<-ended
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}
