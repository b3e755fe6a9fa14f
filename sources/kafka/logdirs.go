package kafka

import (
	"context"
	"fmt"

	"github.com/segmentio/kafka-go/protocol"
)

// logSizes asks each leader how many bytes its partitions have, by "topic/number". For a
// user without the permission the map is empty, without an error.
func (s *Source) logSizes(ctx context.Context, parts []partition) (map[string]int64, error) {
	_, topics, err := s.topics(ctx)
	if err != nil {
		return nil, err
	}
	leads := map[int32]map[string][]int32{} // leader: topic: numbers
	wanted := map[string]bool{}
	for _, p := range parts {
		wanted[p.String()] = true
	}
	for _, t := range topics {
		for _, pm := range t.partitions {
			if p := (partition{name: t.name, number: pm.number}); pm.leader >= 0 && wanted[p.String()] {
				if leads[pm.leader] == nil {
					leads[pm.leader] = map[string][]int32{}
				}
				leads[pm.leader][t.name] = append(leads[pm.leader][t.name], pm.number)
			}
		}
	}
	sizes := map[string]int64{}
	for leader, of := range leads {
		w := request(protocol.DescribeLogDirs)
		w.length(len(of))
		for name, numbers := range of {
			w.text(name)
			w.length(len(numbers))
			for _, n := range numbers {
				w.i32(n)
			}
			w.tags()
		}
		w.tags()
		r, err := s.client.ask(ctx, protocol.DescribeLogDirs, broker(leader), w, smallAnswer, nil)
		if err != nil {
			return nil, err
		}
		if parseLogDirs(r, sizes); r.err != nil {
			return nil, fmt.Errorf("answer to DescribeLogDirs: %w", r.err)
		}
	}
	return sizes, nil
}

func parseLogDirs(r *reader, sizes map[string]int64) {
	r.i32() // throttle
	for n := r.length(6); n > 0 && r.err == nil; n-- {
		r.i16() // a folder that failed has no topics
		_ = r.text()
		for t := r.length(4); t > 0 && r.err == nil; t-- {
			name := r.text()
			for k := r.length(22); k > 0 && r.err == nil; k-- {
				p := partition{name: name, number: r.i32()}
				size := r.i64()
				r.i64() // lag
				if future := r.i8(); future == 0 && r.err == nil {
					sizes[p.String()] = size
				}
				r.tags()
			}
			r.tags()
		}
		r.tags()
	}
	r.tags()
}
