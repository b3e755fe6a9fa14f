package brokers

import (
	"sync"

	"github.com/headrace/headrace/sources"
)

// Segments has the listed segments of partitions. The end of a partition is found once and then
// stays, whatever is produced later. An adapter has one. Its zero value is ready.
type Segments struct {
	mu    sync.Mutex // guards what follows
	all   map[sources.PartitionID][]sources.Segment
	ended map[sources.PartitionID]bool // the end of the partition was found
}

// Put adds a segment that was listed before the source was opened.
func (s *Segments) Put(id sources.PartitionID, g sources.Segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(id, g)
}

func (s *Segments) put(id sources.PartitionID, g sources.Segment) {
	if s.all == nil {
		s.all = map[sources.PartitionID][]sources.Segment{}
	}
	s.all[id] = append(s.all[id], g)
}

// Of returns the segments of a partition, in order.
func (s *Segments) Of(id sources.PartitionID) []sources.Segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[id]
}

// After returns at most max segments with ID > after. If it knows fewer, and the end of the
// partition was not found yet, it calls extend, which finds the end and calls End.
func (s *Segments) After(id sources.PartitionID, after int64, max int, extend func() error) ([]sources.Segment, error) {
	known, ended := s.later(id, after)
	if len(known) < max && !ended {
		if err := extend(); err != nil {
			return nil, err
		}
		known, _ = s.later(id, after)
	}
	return known[:min(max, len(known))], nil
}

func (s *Segments) later(id sources.PartitionID, after int64) (some []sources.Segment, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Later(s.all[id], after), s.ended[id]
}

// End adds the last segment of a partition, unless it is sealed without a record. If another
// call was faster, it changes nothing.
func (s *Segments) End(id sources.PartitionID, g sources.Segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended[id] {
		return
	}
	if g.Start < g.End || !g.Sealed {
		s.put(id, g)
	}
	if s.ended == nil {
		s.ended = map[sources.PartitionID]bool{}
	}
	s.ended[id] = true
}
