//go:build pulsar

package pulsar

import (
	"testing"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/sources/brokers"
)

// The end of a topic moves while it is looked for: a live dataset that begins there has a
// first segment all the same, which does not begin after its end.
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
				_ = p.Flush()
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
