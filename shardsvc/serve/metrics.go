package serve

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/wire"
	"github.com/headrace/headrace/sources"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	allPartitions   = 500 // up to so many partitions, each has its series
	worstPartitions = 20  // with more, only so many of the worst have one, and there is a sum
	sumLabel        = "_sum"
	scrapeTimeout   = 5 * time.Second
)

// metrics counts events and reads the core's counts at each scrape. "records" in a name
// means units of the source: bytes for files.
type metrics struct {
	s        *Server
	reg      prometheus.Registerer
	commits  prometheus.Histogram
	refused  *prometheus.CounterVec
	reclaims *prometheus.CounterVec
	cuts     *prometheus.CounterVec

	mu     sync.Mutex
	tracks map[uint32]*track
}

const unitHelp = " Unit: the source's own (label unit: bytes for files, records for brokers)."

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("headrace_"+name, help, labels, nil)
}

var (
	descRecords     = desc("records_total", "Settled so far, by outcome: acked, excluded, dropped. It never falls: what comes again after a restore is counted again."+unitHelp, "dataset", "outcome", "unit")
	descBad         = desc("bad_records", "Records that could not be decoded and are excluded, by column (empty: the record as a whole).", "dataset", "column")
	descUnwritten   = desc("dead_letters_waiting", "Dead letters that are not written yet.", "dataset")
	descBacklog     = desc("backlog_records", "Not settled yet, by stage: unplanned, pending, leased. Above 500 partitions: the worst 20 and partition=\"_sum\"."+unitHelp, "dataset", "partition", "stage", "unit")
	descDistance    = desc("distance_records", "Distance to head of retained (from here on the source must not delete), committed, bound, acked (low marks), leased, planned (high marks) and head itself. Above 500 partitions: the worst 20 and partition=\"_sum\"."+unitHelp, "dataset", "partition", "mark", "unit")
	descAge         = desc("data_age_seconds", "How long the oldest unsettled data has been known to this master, estimated from amounts: 0 when all is settled.", "dataset")
	descLag         = desc("event_time_lag_seconds", "Now minus the newest event time that is acked, of the partition that is furthest behind: 0 when none is behind. Absent until a record with an event time is acked.", "dataset")
	descDrain       = desc("drain_seconds", "Backlog over the rate of the last minute: +Inf when nothing is being settled.", "dataset")
	descKeptRecords = desc("retention_distance_records", "Distance from the beginning of the source's log to the oldest record that is still needed. Above 500 partitions: the 20 that are nearest in time."+unitHelp, "dataset", "partition", "unit")
	descKeptSeconds = desc("retention_distance_seconds", "Time until the source may delete the oldest record that is still needed: +Inf when nothing will delete it, as far as is known.", "dataset", "partition")
	descKeptWarning = desc("retention_warning", "1: headrace_retention_distance_seconds is less than guard.warn, or less than twice the time that catching up needs.", "dataset", "partition")
	descSilent      = desc("source_silent_seconds", "How long the source has not answered the master's questions: 0 while it answers.", "dataset")
	descWait        = desc("trainer_wait_seconds_total", "Time a trainer's process waited for batches.", "rank")
	descBound       = desc("checkpoint_age_seconds", "How long ago the newest checkpoint was bound, as far as this master knows. For private: the newest of each rank.", "rank")
	descStepOf      = desc("checkpoint_step", "The step of the newest bound checkpoint.", "rank")
	descStep        = desc("trainer_step_seconds_total", "Time a trainer's process spent between a batch and its step.", "rank")
)

func newMetrics(s *Server) (*metrics, error) {
	m := &metrics{
		s: s, reg: s.cfg.Registerer, tracks: map[uint32]*track{},
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "headrace_store_commit_seconds", Help: "Time until a batch of changes was durable.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headrace_acks_refused_total", Help: "Acks that changed nothing, by reason.",
		}, []string{"reason"}),
		reclaims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headrace_lease_reclaims_total", Help: "Leases whose rows became pending again, by reason.",
		}, []string{"reason"}),
		cuts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headrace_cuts_total", Help: "Cuts by what happened to them: frozen, bound, voided, dropped.",
		}, []string{"event"}),
	}
	if m.reg == nil {
		return m, nil
	}
	for i, c := range m.collectors() {
		if err := m.reg.Register(c); err != nil {
			for _, c := range m.collectors()[:i] {
				m.reg.Unregister(c)
			}
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.commits, m.refused, m.reclaims, m.cuts, m}
}

func (m *metrics) unregister() {
	if m.reg != nil {
		for _, c := range m.collectors() {
			m.reg.Unregister(c)
		}
	}
}

func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descRecords, descBad, descUnwritten, descBacklog, descDistance, descAge, descLag, descDrain, descKeptRecords, descKeptSeconds, descKeptWarning, descSilent, descWait, descStep, descBound, descStepOf} {
		ch <- d
	}
}

// Collect asks the loop for its counts, a page of partitions at a time.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var (
		sets    []shardsvc.DatasetInfo
		workers []shardsvc.WorkerInfo
		cuts    []shardsvc.CutInfo
	)
	if err := m.s.view(ctx, func(l *loop) { sets, workers, cuts = l.core.Datasets(), l.core.Workers(), l.core.Cuts() }); err != nil {
		ch <- prometheus.NewInvalidMetric(descRecords, err)
		return
	}
	m.forget(sets)
	m.checkpoints(cuts, ch)
	for i := range sets {
		m.dataset(ctx, &sets[i], ch)
	}
	wait, step := map[uint32]float64{}, map[uint32]float64{}
	for _, w := range workers {
		wait[w.Rank] += w.WaitSeconds
		step[w.Rank] += w.StepSeconds
	}
	for rank := range wait {
		label := strconv.FormatUint(uint64(rank), 10)
		ch <- prometheus.MustNewConstMetric(descWait, prometheus.CounterValue, wait[rank], label)
		ch <- prometheus.MustNewConstMetric(descStep, prometheus.CounterValue, step[rank], label)
	}
}

// checkpoints sends the newest checkpoints. The label rank is empty unless each rank has its
// own model.
func (m *metrics) checkpoints(cuts []shardsvc.CutInfo, ch chan<- prometheus.Metric) {
	is := newest(cuts, shardsvc.CutBound)
	for i := range cuts {
		k := &cuts[i]
		if !is[k.ID] {
			continue
		}
		rank := ""
		if k.Rank != cut.Group {
			rank = strconv.FormatInt(k.Rank, 10)
		}
		ch <- prometheus.MustNewConstMetric(descBound, prometheus.GaugeValue, m.s.boundAge(k).Seconds(), rank)
		ch <- prometheus.MustNewConstMetric(descStepOf, prometheus.GaugeValue, float64(k.Step), rank)
	}
}

func (m *metrics) dataset(ctx context.Context, d *shardsvc.DatasetInfo, ch chan<- prometheus.Metric) {
	name, o := d.Name, &d.Options
	for of, v := range m.track(d.ID).grown(d) {
		ch <- prometheus.MustNewConstMetric(descRecords, prometheus.CounterValue, float64(sources.InUnits(of.unit, v)), name, of.outcome, of.unit)
	}
	for _, b := range d.Bad.Columns {
		ch <- prometheus.MustNewConstMetric(descBad, prometheus.GaugeValue, float64(b.Records), name, b.Column)
	}
	ch <- prometheus.MustNewConstMetric(descUnwritten, prometheus.GaugeValue, float64(d.Bad.Unwritten), name)
	age, drain := m.track(d.ID).seen(time.Now(), d.Counts.Plus(d.Backfill))
	ch <- prometheus.MustNewConstMetric(descAge, prometheus.GaugeValue, age, name)
	if lag := eventLag(d, time.Now()); lag != nil {
		ch <- prometheus.MustNewConstMetric(descLag, prometheus.GaugeValue, *lag, name)
	}
	ch <- prometheus.MustNewConstMetric(descDrain, prometheus.GaugeValue, drain, name)
	m.retention(d, ch)
	ch <- prometheus.MustNewConstMetric(descSilent, prometheus.GaugeValue, m.s.silence(d.ID).GetSeconds(), name)

	marks, err := m.marks(ctx, d.ID, o.Unit)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(descBacklog, err)
		return
	}
	for _, p := range marks {
		unit := cmp.Or(p.unit, o.Unit)
		for stage, v := range map[string]int64{"unplanned": p.dist.Planned, "pending": p.pending, "leased": p.leased} {
			ch <- prometheus.MustNewConstMetric(descBacklog, prometheus.GaugeValue, float64(sources.InUnits(unit, v)), name, p.label, stage, unit)
		}
		for mark, v := range map[string]int64{"committed": p.dist.Committed, "bound": p.dist.Bound, "acked": p.dist.Acked,
			"leased": p.dist.Leased, "planned": p.dist.Planned, "head": p.dist.Head, "retained": p.retained} {
			ch <- prometheus.MustNewConstMetric(descDistance, prometheus.GaugeValue, float64(sources.InUnits(unit, v)), name, p.label, mark, unit)
		}
	}
}

// partitionMarks is one partition with its passes added up, or the sum of all partitions.
type partitionMarks struct {
	label           string
	unit            string // empty: of the dataset's source
	dist            shardsvc.Distances
	retained        int64
	pending, leased int64
}

func (p *partitionMarks) add(q *partitionMarks) {
	p.dist.Committed += q.dist.Committed
	p.dist.Bound += q.dist.Bound
	p.dist.Acked += q.dist.Acked
	p.dist.Leased += q.dist.Leased
	p.dist.Planned += q.dist.Planned
	p.dist.Head += q.dist.Head
	p.retained += q.retained
	p.pending += q.pending
	p.leased += q.leased
}

func (m *metrics) marks(ctx context.Context, id uint32, unit string) ([]partitionMarks, error) {
	var all []partitionMarks
	retained := map[shardsvc.PartitionNo]int64{}
	if err := m.s.view(ctx, func(l *loop) {
		for _, h := range l.core.RetainMarks(id) {
			retained[h.Partition] = h.Units
		}
	}); err != nil {
		return nil, err
	}
	for after := uint32(0); ; {
		var page []shardsvc.PassInfo
		if err := m.s.view(ctx, func(l *loop) { page = l.core.State(l.now(), id, after, maxPage) }); err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		for i := range page {
			p := &page[i]
			one := partitionMarks{label: wire.Valid(named(p.Label, p.Number)), unit: p.Unit, dist: p.Distances, pending: p.Counts.Pending, leased: p.Counts.Leased}
			if n := len(all); n > 0 && all[n-1].label == one.label {
				all[n-1].add(&one)
				continue
			}
			one.retained = retained[p.Number]
			all = append(all, one)
		}
		after = page[len(page)-1].Number
	}
	if len(all) <= allPartitions {
		return all, nil
	}
	sum := partitionMarks{label: sumLabel}
	for i := range all {
		if all[i].unit == unit { // else of the backfill
			sum.add(&all[i])
		}
	}
	slices.SortFunc(all, func(a, b partitionMarks) int { return cmp.Compare(b.dist.Acked, a.dist.Acked) })
	return append(all[:worstPartitions:worstPartitions], sum), nil
}

func (m *metrics) track(id uint32) *track {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tracks[id]
	if t == nil {
		t = &track{}
		m.tracks[id] = t
	}
	return t
}

// forget drops the tracks of datasets that are gone.
func (m *metrics) forget(sets []shardsvc.DatasetInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.tracks {
		if !slices.ContainsFunc(sets, func(d shardsvc.DatasetInfo) bool { return d.ID == id }) {
			delete(m.tracks, id)
		}
	}
}
