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

// Retention says how close the source is to deleting the oldest record of a partition that
// is still needed. It is the newest finding of the master's guard.
type Retention struct {
	Partition uint32
	Identity  string
	Label     string        // the partition's name for people
	Records   int64         // from the beginning of the source's log to that record
	Left      time.Duration // until it may be deleted; sources.Never: nothing will, as far as is known
	By        string        // what deletes it: age | size | movement; deleted: it is gone; "" with Never
	Warn      bool          // Left is less than is safe
	Blind     string        // why the guard could not find out more; "" if it could
}

// retentions keeps the newest findings, by dataset.
type retentions struct {
	mu sync.Mutex
	of map[uint32][]Retention
}

// SetRetention replaces the findings of a dataset. An empty list forgets the dataset.
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

// Need says what the source of a partition must keep.
type Need = shardsvc.NeedInfo

// Needed returns for each partition that is not wholly settled the position from which on
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

// seconds returns Left in seconds; Never is +Inf.
func (r *Retention) seconds() float64 {
	if r.Left == sources.Never {
		return math.Inf(1)
	}
	return r.Left.Seconds()
}

// nearest returns the partition that is closest to a loss; nil if there is none.
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

// retention sends the partitions of a dataset; of many, only those nearest to a loss.
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
