package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// Segments lists the known segments and, if the partition is read further than they reach,
// one more up to its end. That end is found once and stays, whatever is produced later. A
// partition with nothing to read has no segment. A live partition has one segment, which
// is not sealed.
func (s *Source) Segments(ctx context.Context, id sources.PartitionID, after int64, most int) ([]sources.Segment, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	p, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.segments.After(id, after, most, func() error { return s.extend(ctx, p) })
}

// extend lists one more segment if there is more to read.
func (s *Source) extend(ctx context.Context, p partition) error {
	head, err := s.client.offsetOf(ctx, p, atHead, committed)
	if err != nil {
		return err
	}
	end := head
	if !s.o.live() {
		if end, err = s.resolve(ctx, p, s.o.End, "end", head); err != nil {
			return err
		}
	}
	listed, start := s.segments.Of(p.id()), s.o.Start
	if s.HasJoined(p.id()) && start.At == brokers.Latest {
		start.At = brokers.Earliest
	}
	if s.o.live() && len(listed) > 0 {
		return nil
	}
	g := sources.Segment{End: end, Sealed: !s.o.live(), Locator: p.locator(), Name: p.String()}
	if n := len(listed); n > 0 {
		g.ID, g.Start = listed[n-1].ID+1, listed[n-1].End
	} else if g.Start, err = s.resolve(ctx, p, start, "start", head); err != nil {
		return err
	}
	if len(listed) == 0 && !s.o.live() && g.End < g.Start && (named(s.o.Start, p) || named(s.o.End, p)) {
		return fmt.Errorf("%s: it would end at offset %d, before its start at offset %d: change start or end, start_offsets or end_offsets", p, g.End, g.Start)
	}
	s.segments.End(p.id(), g)
	return nil
}

// resolve finds the offset that an end means in a partition now.
func (s *Source) resolve(ctx context.Context, p partition, e End, name string, head int64) (int64, error) {
	if offset, ok := e.Of(p.names()...); ok {
		return offset, s.inLog(ctx, p, offset, name, head)
	}
	switch e.At {
	case brokers.Latest:
		return head, nil
	case brokers.Earliest:
		return s.client.offsetOf(ctx, p, atLogStart, committed)
	case brokers.AtTime:
		offset, err := s.client.offsetOf(ctx, p, e.Time.UnixMilli(), committed)
		if offset < 0 || offset > head {
			offset = head // no record is that new
		}
		return offset, err
	}
	return 0, errors.New("kafka: no such end")
}

// named says whether an offset is given for the partition.
func named(e End, p partition) bool {
	_, is := e.Of(p.names()...)
	return is
}

// offsetsThere refuses start and end offsets of partitions that do not exist. With a mistyped
// number, a partition would be read from another place than the user meant.
func (o *Options) offsetsThere(topics []topicMeta) error {
	for field, offsets := range map[string]map[string]int64{"start_offsets": o.Start.Places, "end_offsets": o.End.Places} {
		for _, key := range slices.Sorted(maps.Keys(offsets)) {
			topic, number, named := strings.Cut(key, "/")
			if !named {
				number = topic
			}
			there, most := false, 0
			for _, t := range topics {
				if !named || t.name == topic {
					there = there || slices.ContainsFunc(t.partitions, func(p partitionMeta) bool { return strconv.Itoa(int(p.number)) == number })
					most = max(most, len(t.partitions))
				}
			}
			if !there {
				return fmt.Errorf("dataset %s: kafka.%s names partition %s, which is not there: there are %d, numbered from 0", o.Dataset, field, key, most)
			}
		}
	}
	return nil
}

// inLog returns an error if an offset that the spec names is not in the log. Reading never
// begins at another offset instead.
func (s *Source) inLog(ctx context.Context, p partition, offset int64, name string, head int64) error {
	if offset > head {
		return fmt.Errorf("%s: %s is at offset %d, and its last stable offset is %d now: name one that is there", p, name, offset, head)
	}
	low, err := s.client.offsetOf(ctx, p, atLogStart, committed)
	if err != nil || offset >= low {
		return err
	}
	return &sources.Truncated{Lost: sources.Range{Partition: p.id(), Start: offset, End: low}, Name: p.String(),
		Err: fmt.Errorf("%s names an offset that Kafka has deleted; its log begins at %d", name, low)}
}
