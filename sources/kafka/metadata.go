package kafka

import (
	"context"
	"fmt"

	"github.com/segmentio/kafka-go/protocol"
)

// topicMeta is a topic as the broker knows it now.
type topicMeta struct {
	code       int16
	name       string
	id         topicID
	partitions []partitionMeta
}

type partitionMeta struct{ number, leader int32 }

// metadata asks for topics by name. It never creates one.
func (c *client) metadata(ctx context.Context, topics []string) (cluster string, all []topicMeta, err error) {
	w := request(protocol.Metadata)
	w.length(len(topics))
	for _, t := range topics {
		w.id(topicID{})
		w.text(t)
		w.tags()
	}
	w.i8(0) // false: create no topic
	w.i8(0) // false: list no operations
	w.tags()
	r, err := c.ask(ctx, protocol.Metadata, anyBroker, w, smallAnswer, nil)
	if err != nil {
		return "", nil, err
	}
	cluster, all = parseMetadata(r)
	if r.err != nil {
		return "", nil, fmt.Errorf("answer to Metadata: %w", r.err)
	}
	return cluster, all, nil
}

func parseMetadata(r *reader) (cluster string, all []topicMeta) {
	r.i32() // throttle
	for n := r.length(11); n > 0; n-- {
		r.i32()
		_ = r.text() // host
		r.i32()
		_ = r.text() // rack
		r.tags()
	}
	cluster = r.text()
	r.i32() // controller
	for n := r.length(26); n > 0 && r.err == nil; n-- {
		t := topicMeta{code: r.i16(), name: r.text(), id: r.id()}
		r.i8() // internal
		for k := r.length(18); k > 0 && r.err == nil; k-- {
			r.i16() // its code; a partition without a leader is listed too
			t.partitions = append(t.partitions, partitionMeta{number: r.i32(), leader: r.i32()})
			r.i32()       // epoch
			for range 3 { // replicas, in sync, offline
				r.take(4 * max(0, r.length(4)))
			}
			r.tags()
		}
		r.i32() // operations
		r.tags()
		all = append(all, t)
	}
	r.tags()
	return cluster, all
}
