package rocketmq

import (
	"maps"
	"slices"
	"time"
)

// history is what Compare knows of one queue.
type history struct {
	p         partition
	low, head int64     // the newest ones that were returned
	end       int64     // after the last of traces
	fell      time.Time // since when head is below end; zero: it is not
	lowest    int64     // the lowest head since then
	fresh     bool      // low and head were returned after the last Compare: the broker answers

	// Only Compare uses these.
	traces []trace // of messages that were just before heads, in the order of their offsets
	over   string  // the connection over which the last of them was there
	deep   bool    // earlier was called
}

// reaches notes where a queue begins and ends.
func (s *Source) reaches(p partition, low, head int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.histories[p.id()]
	if h == nil {
		h = &history{p: p}
		s.histories[p.id()] = h
	}
	h.low, h.head, h.fresh = low, head, true
	switch {
	case head >= h.end:
	case h.fell.IsZero():
		h.fell, h.lowest = time.Now(), head
	default:
		h.lowest = min(h.lowest, head)
	}
}

// freshHistories returns the queues whose brokers have answered since the last Compare.
func (s *Source) freshHistories() (all []*history) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.histories)) {
		if h := s.histories[id]; h.fresh {
			h.fresh = false
			all = append(all, h)
		}
	}
	return all
}

func (s *Source) hasFallen(h *history) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !h.fell.IsZero()
}

// likely is the assumed size of a message that was not fetched yet: that of the largest
// remembered one.
func (h *history) likely() int {
	if len(h.traces) == 0 {
		return sizeUnknown
	}
	n := sizeLeast
	for _, t := range h.traces {
		n = max(n, t.size)
	}
	return n
}

// keep sets what is remembered. The head is not below it.
func (s *Source) keep(h *history, traces []trace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.traces, h.end, h.fell = traces, 0, time.Time{}
	if n := len(traces); n > 0 {
		h.end = traces[n-1].offset + 1
	} else {
		h.deep = false
	}
}
