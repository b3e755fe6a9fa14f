package hold

import (
	"fmt"
	"math"
	"time"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// maxOpen bounds the requests that one stream has open: leases may be small
// toward the end of an input, but not so small that more would help.
const maxOpen = 4

// want asks for as many leases as the worker uses up in the prefetch time, one
// at a time until it has one that was sized by its rate: leases from before are
// small, and as many as would be short of them were far too much. A
// reader that has run out asks whatever the rate: it may hold less than a batch.
func (c *Core) want(s *stream) {
	if !c.talking() || s.closed || s.over || s.w.state != joined {
		return
	}
	left := int64(0)
	for _, l := range s.leases {
		left += max(0, min(l.end, l.head)-l.frontier)
	}
	short := s.rate.units*c.cfg.Prefetch.Seconds() - float64(left)
	if !s.hungry && short <= 0 && !s.waits() {
		return
	}
	n := 1
	if s.sized && short > 0 {
		n = max(1, int(math.Ceil(min(maxOpen, short/float64(s.lastGrant)))))
	}
	for len(s.requests) < n {
		c.lastRequest++
		c.requests[c.lastRequest] = s
		s.requests = append(s.requests, c.lastRequest)
		if s.ratedFrom == 0 && s.rate.units > 0 {
			s.ratedFrom = c.lastRequest
		}
		m := c.message()
		m.Requests = append(m.Requests, &pb.LeaseRequest{
			Id: c.lastRequest, Worker: s.id.Worker, Dataset: s.dataset, Rate: s.rate.units, Count: 1, Virtual: s.virtual,
		})
	}
}

// onStanding tells the stream what it waits for; END closes the request.
func (c *Core) onStanding(st *pb.Standing) {
	s := c.requests[st.Request]
	if s == nil {
		return
	}
	s.standing, s.told = st.State, max(s.told, st.Request)
	switch st.State {
	case pb.Standing_END:
		delete(c.requests, st.Request)
		s.answeredRequest(st.Request)
		s.over = true
	case pb.Standing_FAILED, pb.Standing_DELETED:
		s.over = true
	}
	c.fx.States = append(c.fx.States, StateOf{Stream: s.id, State: st.State, Reason: st.Reason})
}

// meter measures a worker's pace while it has something to do: the time in which
// it waits for us does not make it slow.
type meter struct {
	units   float64 // per second, smoothed; 0 unknown
	batches float64
	since   Time // busy since, or the last sample's end
	busy    Time // busy time of the sample so far
	nUnits  int64
	nBatch  uint32
	flight  int64 // units of an untracked stream sent and not consumed
	perSent float64
}

const (
	sampleMin    = Time(50 * time.Millisecond)
	smoothedOver = float64(2 * time.Second)
)

// delivered: the worker has something to do from now on.
func (m *meter) delivered(now Time, wasIdle bool) {
	if wasIdle {
		m.since = now
	}
}

// consumed: units in batches were used up since the last call; busy says whether
// there is more to do.
func (m *meter) consumed(now Time, units int64, batches uint32, busy bool) {
	if m.since > 0 {
		m.busy += now - m.since
	}
	m.since = 0
	if busy {
		m.since = now
	}
	m.nUnits += units
	m.nBatch += batches
	if m.busy < sampleMin || m.nBatch == 0 {
		return
	}
	dt := float64(m.busy) / 1e9
	weight := 1 - math.Exp(-float64(m.busy)/smoothedOver)
	if m.batches == 0 {
		weight = 1
	}
	m.units += weight * (float64(m.nUnits)/dt - m.units)
	m.batches += weight * (float64(m.nBatch)/dt - m.batches)
	m.busy, m.nUnits, m.nBatch = 0, 0, 0
}

// sent and consumeBatches measure an untracked stream by its credits.
func (m *meter) sent(now Time, units int64) {
	if m.flight == 0 {
		m.since = now
	}
	m.flight++
	m.perSent += 0.1 * (float64(units) - m.perSent)
	if m.perSent == 0 || m.flight == 1 {
		m.perSent = float64(units)
	}
}

func (m *meter) consumeBatches(now Time, n uint32) {
	n = uint32(min(int64(n), m.flight))
	if n == 0 {
		return
	}
	m.flight -= int64(n)
	m.consumed(now, int64(m.perSent*float64(n)), n, m.flight > 0)
}

func (t Token) String() string { return fmt.Sprintf("%d.%d.%d", t.Epoch, t.Term, t.Sequence) }
