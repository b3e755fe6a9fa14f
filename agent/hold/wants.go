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

// want asks for as many leases as the worker uses up in the prefetch time. Until it has one
// that was sized by its rate, it asks for one at a time: the first leases are small, and if it
// asked for as many of them as it lacks, it might get as many large ones. A reader that has
// run out asks whatever the rate: it may hold less than a batch.
func (c *Core) want(s *stream) {
	if !c.talking() || s.closed || s.over || s.w.state != joined {
		return
	}
	short := s.short(c.cfg.Prefetch.Seconds())
	if !s.hungry && short <= 0 && !s.waits() {
		return
	}
	n := 1
	if s.sized[s.lastOf] && short > 0 {
		n = max(1, int(math.Ceil(min(maxOpen, short/float64(s.lastGrant)))))
	}
	for len(s.requests) < n {
		c.lastRequest++
		c.requests[c.lastRequest] = s
		s.requests = append(s.requests, c.lastRequest)
		for in, rate := range s.rate.units {
			if s.ratedFrom[in] == 0 && rate > 0 {
				s.ratedFrom[in] = c.lastRequest
			}
		}
		m := c.message()
		m.Requests = append(m.Requests, &pb.LeaseRequest{
			Id: c.lastRequest, Worker: s.id.Worker, Dataset: s.dataset, Rate: s.rate.units[ofSource], BackfillRate: s.rate.units[ofBackfill], Count: 1, Virtual: s.virtual,
		})
	}
}

// short is how many units the stream lacks: those that it uses up in the given time, less those
// that it has, in units of the input that was granted last. It has enough while it holds
// records of an input whose rate is not known yet: it asks again when it has run out.
func (s *stream) short(seconds float64) float64 {
	var left [inputs]int64
	for _, l := range s.leases {
		left[l.in] += max(0, min(l.end, l.head)-l.frontier)
	}
	in := s.lastOf
	other := inputs - 1 - in
	short := s.rate.units[in]*seconds - float64(left[in])
	if n := float64(left[other]); n > 0 {
		if s.rate.units[other] == 0 {
			return min(short, 0)
		}
		short -= n / s.rate.units[other] * s.rate.units[in]
	}
	return short
}

// hasAll says whether the master has told each open request that nothing is there to read now.
func (s *stream) hasAll() bool {
	n := len(s.requests)
	return n > 0 && s.requests[n-1] <= s.told && s.standing == pb.Standing_WAIT
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
	state := st.State
	if s.gaveUp && state == pb.Standing_DRAINED { // the master had not heard of the failure when it said so
		state = pb.Standing_WAIT
	}
	c.fx.States = append(c.fx.States, StateOf{Stream: s.id, State: state, Reason: st.Reason})
}

// meter measures a worker's pace while it has something to do: the time in which
// it waits for us does not make it slow.
type meter struct {
	units   [inputs]float64 // per second, smoothed; 0 unknown
	batches float64
	since   Time // busy since, or the last sample's end
	busy    Time // busy time of the sample so far
	used    used
	nBatch  uint32
	flight  int64           // batches of an untracked stream that were sent and not consumed
	sentOf  input           // the input of the newest of them
	perSent [inputs]float64 // units of one of them, smoothed
}

// used is what some batches held of each input. A batch with records of both inputs says
// nothing about either pace, so it does not count.
type used struct {
	units   [inputs]int64
	batches [inputs]uint32
}

func (u *used) add(units [inputs]int64, batches uint32) {
	in := ofSource
	if units[ofBackfill] > 0 {
		if in = ofBackfill; units[ofSource] > 0 {
			return
		}
	}
	u.units[in] += units[in]
	u.batches[in] += batches
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

// consumed notes that these batches were used up since the last call. busy says whether there is
// more to do.
func (m *meter) consumed(now Time, done used, batches uint32, busy bool) {
	if m.since > 0 {
		m.busy += now - m.since
	}
	m.since = 0
	if busy {
		m.since = now
	}
	for in := range done.units {
		m.used.units[in] += done.units[in]
		m.used.batches[in] += done.batches[in]
	}
	m.nBatch += batches
	if m.busy < sampleMin || m.nBatch == 0 {
		return
	}
	dt := float64(m.busy) / 1e9
	weight := 1 - math.Exp(-float64(m.busy)/smoothedOver)
	for in, n := range m.used.batches {
		if n == 0 {
			continue
		}
		took, w := dt, weight // all batches take about the same time
		if n != m.nBatch {
			took = dt * float64(n) / float64(m.nBatch)
		}
		if m.units[in] == 0 {
			w = 1
		}
		m.units[in] += w * (float64(m.used.units[in])/took - m.units[in])
	}
	if m.batches == 0 {
		weight = 1
	}
	m.batches += weight * (float64(m.nBatch)/dt - m.batches)
	m.busy, m.used, m.nBatch = 0, used{}, 0
}

// sent and consumeBatches measure an untracked stream by its credits.
func (m *meter) sent(now Time, units [inputs]int64) {
	if m.flight == 0 {
		m.since = now
	}
	m.flight++
	m.sentOf = ofSource
	if units[ofBackfill] > units[ofSource] {
		m.sentOf = ofBackfill
	}
	n, per := float64(units[m.sentOf]), &m.perSent[m.sentOf]
	*per += 0.1 * (n - *per)
	if *per == 0 || m.flight == 1 {
		*per = n
	}
}

func (m *meter) consumeBatches(now Time, n uint32) {
	n = uint32(min(int64(n), m.flight))
	if n == 0 {
		return
	}
	m.flight -= int64(n)
	var done used
	units := [inputs]int64{}
	units[m.sentOf] = int64(m.perSent[m.sentOf] * float64(n))
	done.add(units, n)
	m.consumed(now, done, n, m.flight > 0)
}

func (t Token) String() string { return fmt.Sprintf("%d.%d.%d", t.Epoch, t.Term, t.Sequence) }
