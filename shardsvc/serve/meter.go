package serve

import (
	"context"
	"sync"
	"time"

	"github.com/headrace/headrace/shardsvc"
)

const (
	meterEvery  = time.Second
	meterWindow = 10 * time.Second
)

// meter samples the counts once a second, whether or not anybody asks. So it knows what
// each worker has really acked in the last seconds; the core only has the rate by which it
// sizes leases. And the age of data is known at the first scrape.
type meter struct {
	mu      sync.Mutex
	workers map[process]*speed
}

// process is one process of a rank.
type process struct {
	rank        uint32
	incarnation uint64
}

// speed holds samples of what a process had acked, the oldest first.
type speed struct{ samples []sample }

// run samples until ctx ends.
func (m *meter) run(ctx context.Context, s *Server) {
	tick := time.NewTicker(meterEvery)
	defer tick.Stop()
	for {
		var sets []shardsvc.DatasetInfo
		var workers []shardsvc.WorkerInfo
		if err := s.view(ctx, func(l *loop) { sets, workers = l.core.Datasets(), l.core.Workers() }); err != nil {
			return // the loop has ended
		}
		now := time.Now()
		m.add(now, workers)
		for i := range sets {
			k := s.metrics.track(sets[i].ID)
			k.seen(now, sets[i].Counts.Plus(sets[i].Backfill))
			k.grown(&sets[i])
		}
		s.metrics.forget(sets)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (m *meter) add(now time.Time, workers []shardsvc.WorkerInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.workers
	m.workers = make(map[process]*speed, len(workers))
	for i := range workers {
		w := &workers[i]
		p := process{w.Rank, w.Incarnation}
		v := old[p]
		if v == nil {
			v = &speed{}
		}
		m.workers[p] = v
		v.add(now, int64(w.UnitsAcked))
	}
}

func (v *speed) add(now time.Time, acked int64) {
	v.samples = append(v.samples, sample{now, acked})
	for len(v.samples) > 2 && now.Sub(v.samples[1].at) >= meterWindow {
		v.samples = v.samples[1:]
	}
}

// rate returns the units per second that a process has acked in the last meterWindow; 0 if
// that is not known yet.
func (m *meter) rate(w *shardsvc.WorkerInfo, now time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.workers[process{w.Rank, w.Incarnation}]
	if v == nil || len(v.samples) == 0 {
		return 0
	}
	first := v.samples[0]
	past := now.Sub(first.at).Seconds()
	if past < meterEvery.Seconds()/2 {
		return 0 // too short to say anything
	}
	return float64(int64(w.UnitsAcked)-first.units) / past
}
