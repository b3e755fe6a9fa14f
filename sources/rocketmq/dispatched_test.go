//go:build rocketmq

package rocketmq

import (
	"testing"
	"time"

	"github.com/headrace/headrace/sources/brokers"
)

// A broker shows a message in its queue some milliseconds after it has answered the sender. A dataset that is
// applied after that answer still includes the message.
func TestWhatWasAnsweredBeforeAListingIsListed(t *testing.T) {
	b, _ := realBroker(t)
	const queues = 40 // without the wait, 3 of 10 ends are too low
	for _, one := range []struct {
		name string
		end  func() End
	}{
		{"latest", func() End { return End{At: brokers.Latest} }},
		{"a time", func() End { return End{At: brokers.AtTime, Time: time.Now().Add(time.Hour)} }},
		{"an offset", func() End { return End{At: brokers.Earliest, Places: map[string]int64{"0": 50}} }}, // an offset beyond the head is refused
	} {
		t.Run(one.name, func(t *testing.T) {
			topic := newTopic(t, b, queues)
			o := options(b, topic)
			o.End = one.end()
			for q := range queues {
				if o.End.Places != nil {
					o.End.Places[partition{topic: topic, broker: b.Name(), queue: q}.String()] = 50
				}
			}
			s := openFor(t, o)
			to := b.NewAppender(topic)
			defer to.Close()
			ids, err := s.Partitions(t.Context())
			if err != nil || len(ids) != queues {
				t.Fatalf("%d partitions (%v)", len(ids), err)
			}
			values := make([][]byte, 50)
			for i := range values {
				values[i] = []byte("a record")
			}
			for _, id := range ids {
				p, err := s.find(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if err := to.Append(t.Context(), p.queue, 0, values, func() {}); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Partitions(t.Context()); err != nil { // a new listing
					t.Fatal(err)
				}
				all, err := s.Segments(t.Context(), id, -1, 2)
				if err != nil || len(all) != 1 || all[0].End != 50 {
					t.Fatalf("%s is listed as %+v (%v), but the broker had acknowledged 50 messages", p, all, err)
				}
			}
		})
	}
}
