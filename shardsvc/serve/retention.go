package serve

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/wire"
	"github.com/headrace/headrace/sources"
	"github.com/prometheus/client_golang/prometheus"
)

// Retention says how far the oldest record of a partition that is still needed is from
// being deleted at the source, as the master's guard found it last.
type Retention struct {
	Partition uint32
	Identity  string
	Label     string // what people call the partition
	Records   int64
	Left      time.Duration // sources.Never: nothing will delete it, as far as is known
	By        string        // age | size | movement, deleted: it is gone; "" with Never
	Warn      bool          // it is less than is safe
	Blind     string        // why less is known than could be, "" if not
}

// retentions are the newest findings by dataset.
type retentions struct {
	mu sync.Mutex
	of map[uint32][]Retention
}

// SetRetention replaces what is known of a dataset; none forgets it.
func (s *Server) SetRetention(dataset uint32, all []Retention) {
	s.retentions.mu.Lock()
	defer s.retentions.mu.Unlock()
	if s.retentions.of == nil {
		s.retentions.of = map[uint32][]Retention{}
	}
	if len(all) == 0 {
		delete(s.retentions.of, dataset)
		return
	}
	s.retentions.of[dataset] = all
}

func (s *Server) retention(dataset uint32) []Retention {
	s.retentions.mu.Lock()
	defer s.retentions.mu.Unlock()
	return s.retentions.of[dataset]
}

// Need is what one partition's source must keep.
type Need = shardsvc.NeedInfo

// Needed says for each partition of a dataset that is not settled from which position on
// its source must keep records.
func (s *Server) Needed(ctx context.Context, dataset uint32) ([]Need, error) {
	var all []Need
	known := false
	err := s.view(ctx, func(l *loop) {
		_, known = l.core.Dataset(dataset)
		all = l.core.Needed(dataset)
	})
	switch {
	case err != nil:
		return nil, err
	case !known:
		return nil, fmt.Errorf("dataset %d: %w", dataset, ErrUnknown)
	}
	return all, nil
}

// seconds is Left as a number.
func (r *Retention) seconds() float64 {
	if r.Left == sources.Never {
		return math.Inf(1)
	}
	return r.Left.Seconds()
}

// nearest is the partition that is closest to a loss.
func nearest(all []Retention) *Retention {
	if len(all) == 0 {
		return nil
	}
	r := slices.MinFunc(all, func(a, b Retention) int {
		return cmp.Or(cmp.Compare(a.seconds(), b.seconds()), cmp.Compare(a.Records, b.Records))
	})
	return &r
}

func retentionProto(r *Retention) *headracev1.Retention {
	if r == nil {
		return nil
	}
	out := &headracev1.Retention{Partition: r.Partition, Identity: wire.Valid(r.Identity), Label: wire.Valid(r.Label), Records: r.Records, Never: r.Left == sources.Never,
		By: r.By, Warn: r.Warn, Blind: wire.Valid(r.Blind)}
	if !out.Never {
		out.Seconds = r.Left.Seconds()
	}
	return out
}

// retention shows the partitions of a dataset, or of many those that are nearest.
func (m *metrics) retention(d *shardsvc.DatasetInfo, ch chan<- prometheus.Metric) {
	all := slices.Clone(m.s.retention(d.ID))
	if len(all) > allPartitions {
		slices.SortFunc(all, func(a, b Retention) int { return cmp.Compare(a.seconds(), b.seconds()) })
		all = all[:worstPartitions]
	}
	for i := range all {
		r := &all[i]
		label := wire.Valid(named(r.Label, r.Partition))
		ch <- prometheus.MustNewConstMetric(descKeptRecords, prometheus.GaugeValue, float64(sources.InUnits(d.Options.Unit, r.Records)), d.Name, label, d.Options.Unit)
		ch <- prometheus.MustNewConstMetric(descKeptSeconds, prometheus.GaugeValue, r.seconds(), d.Name, label)
		warn := 0.0
		if r.Warn {
			warn = 1
		}
		ch <- prometheus.MustNewConstMetric(descKeptWarning, prometheus.GaugeValue, warn, d.Name, label)
	}
}
