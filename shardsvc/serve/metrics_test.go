package serve_test

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
	"github.com/prometheus/client_golang/prometheus"
)

// scrape returns every series as name{label="value",...}.
func scrape(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			key := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.Counter != nil:
				all[key] = m.Counter.GetValue()
			case m.Gauge != nil:
				all[key] = m.Gauge.GetValue()
			case m.Histogram != nil:
				all[key] = float64(m.Histogram.GetSampleCount())
			}
		}
	}
	return all
}

func TestMetricsSayWhereEveryUnitIs(t *testing.T) {
	noLeaks(t)
	reg := prometheus.NewPedanticRegistry() // it refuses a series that Describe does not name
	m := startMaster(t, memstore.New(), func(c *serve.Config) { c.Registerer = reg })
	m.setUp(1000)
	a := m.joined("a", 3)
	a.mustAck(a.grant())
	g := a.grant()
	if res, err := a.ack(&headracev1.Token{Epoch: 9, Term: 9, Sequence: 9}, 1); err != nil || res.Code != headracev1.AckResult_STALE {
		t.Fatal(res, err)
	}
	a.send(&headracev1.AgentMessage{SentAt: 5, Status: []*headracev1.WorkerStatus{{Worker: 1, WaitSeconds: 1.5, StepSeconds: 2.5}}})
	m.must(a.until(func(r *headracev1.MasterMessage) bool { return r.Echo == 5 }))
	got := scrape(t, reg)
	for series, want := range map[string]float64{
		`headrace_records_total{dataset="clicks",outcome="acked",unit="bytes"}`:                              100,
		`headrace_records_total{dataset="clicks",outcome="dropped",unit="bytes"}`:                            0,
		`headrace_backlog_records{dataset="clicks",partition="files:clicks",stage="leased",unit="bytes"}`:    100,
		`headrace_backlog_records{dataset="clicks",partition="files:clicks",stage="pending",unit="bytes"}`:   0,
		`headrace_backlog_records{dataset="clicks",partition="files:clicks",stage="unplanned",unit="bytes"}`: 800,
		`headrace_distance_records{dataset="clicks",mark="acked",partition="files:clicks",unit="bytes"}`:     900,
		`headrace_distance_records{dataset="clicks",mark="planned",partition="files:clicks",unit="bytes"}`:   800,
		`headrace_distance_records{dataset="clicks",mark="head",partition="files:clicks",unit="bytes"}`:      0,
		`headrace_acks_refused_total{reason="stale"}`:                                                        1,
		`headrace_trainer_wait_seconds_total{rank="3"}`:                                                      1.5,
		`headrace_trainer_step_seconds_total{rank="3"}`:                                                      2.5,
	} {
		if v, ok := got[series]; !ok || v != want {
			t.Errorf("%s = %v (there: %v), want %v", series, v, ok, want)
		}
	}
	if got[`headrace_store_commit_seconds{}`] < 3 {
		t.Errorf("%v commits are counted, want at least 3", got[`headrace_store_commit_seconds{}`])
	}
	if v := got[`headrace_drain_seconds{dataset="clicks"}`]; v <= 0 { // +Inf if the meter's first look came after the first ack
		t.Errorf("the drain time is %v, want more than 0", v)
	}
	a.mustAck(g)
	a.send(&headracev1.AgentMessage{Leaves: []*headracev1.Leave{{Worker: 1, Reason: headracev1.Leave_KILLED, Ended: true}}})
	a.send(&headracev1.AgentMessage{SentAt: 6})
	m.must(a.until(func(r *headracev1.MasterMessage) bool { return r.Echo == 6 }))
	got = scrape(t, reg)
	if v := got[`headrace_drain_seconds{dataset="clicks"}`]; v <= 0 || math.IsInf(v, 1) {
		t.Errorf("the drain time after 100 more units is %v, want a number above 0", v)
	}
	if v := got[`headrace_data_age_seconds{dataset="clicks"}`]; v <= 0 {
		t.Errorf("the age of the data is %v, want more than 0", v)
	}
	a.hangUp()
	m.must(m.stop())
	if n := len(scrape(t, reg)); n != 0 {
		t.Errorf("after the master has stopped, it still has %d series", n)
	}
}

func TestReclaimsAreCountedByReasonAndLoggedByName(t *testing.T) {
	reg := prometheus.NewRegistry()
	log := lockedBuffer{wrote: make(chan struct{}, 1)}
	m := startMaster(t, memstore.New(), func(c *serve.Config) {
		c.Registerer, c.Logger = reg, slog.New(slog.NewTextHandler(&log, nil))
	})
	defer m.stop()
	m.setUp(1000)
	a := m.joined("a", 0)
	defer a.hangUp()
	a.grant()
	a.send(&headracev1.AgentMessage{SentAt: 9, Leaves: []*headracev1.Leave{{Worker: 1, Reason: headracev1.Leave_KILLED, Ended: true}}})
	m.must(a.until(func(r *headracev1.MasterMessage) bool { return r.Echo == 9 }))
	log.until(t, "rows are pending again") // the reclaim is counted before the answer and logged after it
	n := 0.0
	for series, v := range scrape(t, reg) {
		if strings.HasPrefix(series, "headrace_lease_reclaims_total{") {
			t.Log(series)
			n += v
		}
	}
	if n != 1 {
		t.Errorf("%v reclaims are counted, want 1", n)
	}
	if said := log.String(); !strings.Contains(said, `msg="rows are pending again" dataset=clicks partition=files:clicks`) || !strings.Contains(said, "lease=1.1.") {
		t.Errorf("log:\n%s", said)
	}
}

// lockedBuffer is written by the master's goroutines.
type lockedBuffer struct {
	mu    sync.Mutex
	b     strings.Builder
	wrote chan struct{}
}

// until waits for a line that has the text.
func (l *lockedBuffer) until(t *testing.T, text string) {
	t.Helper()
	for late := time.After(time.Minute); !strings.Contains(l.String(), text); {
		select {
		case <-l.wrote:
		case <-late:
			t.Fatalf("%q was not logged:\n%s", text, l.String())
		}
	}
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestManyPartitionsAreShownAsTheWorstAndTheSum(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := startMaster(t, memstore.New(), func(c *serve.Config) { c.Registerer = reg })
	defer m.stop()
	_, err := m.apply(clicks)
	m.must(err)
	ids := make([]serve.NewPartition, 1201)
	for i := range ids {
		ids[i].ID = sources.PartitionID(fmt.Sprintf("files:clicks/%d", i))
	}
	numbers, err := m.srv.AddPartitions(t.Context(), 1, ids, false)
	m.must(err)
	sum := 0.0
	for i, no := range numbers {
		sum += float64(i)
		m.must(m.srv.AddSegments(t.Context(), no, -1, []sources.Segment{{End: int64(i), Sealed: true}}, true))
	}
	series := 0
	got := scrape(t, reg)
	for s, v := range got {
		if strings.Contains(s, `stage="unplanned"`) {
			series++
			if v < 1181 {
				t.Errorf("%s is not one of the worst: %v", s, v)
			}
		}
	}
	if series != 21 || got[`headrace_backlog_records{dataset="clicks",partition="_sum",stage="unplanned",unit="bytes"}`] != sum {
		t.Errorf("%d series, sum %v, want %v", series, got[`headrace_backlog_records{dataset="clicks",partition="_sum",stage="unplanned",unit="bytes"}`], sum)
	}
}

func TestMetricsAndViewsSayThatASourceDoesNotAnswer(t *testing.T) {
	noLeaks(t)
	reg := prometheus.NewRegistry()
	m := startMaster(t, memstore.New(), func(c *serve.Config) { c.Registerer, c.SilentAfter = reg, time.Nanosecond })
	m.setUp(1000)
	const series = `headrace_source_silent_seconds{dataset="clicks"}`
	silent := func(want bool, reason string) {
		t.Helper()
		d, err := m.datasets().Describe(t.Context(), &headracev1.DescribeRequest{Name: "clicks"})
		if err != nil {
			t.Fatal(err)
		}
		v, ok := scrape(t, reg)[series]
		if (d.Silence != nil) != want || d.Silence.GetReason() != reason || !ok || (v > 0) != want {
			t.Errorf("silence %v, metric %v (there: %v); want %v %q", d.Silence, v, ok, want, reason)
		}
	}
	silent(false, "")
	m.srv.SourceAsked(1)
	silent(true, "")
	m.srv.SourceSilent(1, "no leader")
	m.srv.SourceAsked(1)
	silent(true, "no leader")
	m.srv.SourceAnswered(1)
	silent(false, "")
	m.must(m.stop())
}

func TestMetricsAndViewsSayHowLongTheOldestNeededRecordIsKept(t *testing.T) {
	noLeaks(t)
	reg := prometheus.NewRegistry()
	m := startMaster(t, memstore.New(), func(c *serve.Config) { c.Registerer = reg })
	m.setUp(1000)
	needs, err := m.srv.Needed(t.Context(), 1)
	if err != nil || len(needs) != 1 || needs[0].Offset != 0 || needs[0].End != 1000 {
		t.Fatalf("needed is %+v (%v)", needs, err)
	}
	no, identity := needs[0].Partition, needs[0].Identity
	m.srv.SetRetention(1, []serve.Retention{
		{Partition: no + 1, Identity: "id of another", Label: "another", Left: sources.Never},
		{Partition: no, Identity: "id of it", Label: identity, Records: 7, Left: 90 * time.Second, By: "age", Warn: true},
	})
	got := scrape(t, reg)
	for series, want := range map[string]float64{
		fmt.Sprintf("headrace_retention_distance_records{dataset=%q,partition=%q,unit=%q}", "clicks", identity, "bytes"): 7,
		fmt.Sprintf("headrace_retention_distance_seconds{dataset=%q,partition=%q}", "clicks", identity):                  90,
		fmt.Sprintf("headrace_retention_distance_seconds{dataset=%q,partition=%q}", "clicks", "another"):                 math.Inf(1),
		fmt.Sprintf("headrace_retention_warning{dataset=%q,partition=%q}", "clicks", identity):                           1,
		fmt.Sprintf("headrace_retention_warning{dataset=%q,partition=%q}", "clicks", "another"):                          0,
	} {
		if v, ok := got[series]; !ok || v != want {
			t.Errorf("%s is %v (there: %v), want %v", series, v, ok, want)
		}
	}
	d, err := m.datasets().Describe(t.Context(), &headracev1.DescribeRequest{Name: "clicks"})
	if err != nil {
		t.Fatal(err)
	}
	if r := d.Retention; r.GetIdentity() != "id of it" || r.Label != identity || r.Seconds != 90 || r.Records != 7 || !r.Warn || r.Never {
		t.Errorf("the dataset is described as %v", r)
	}
	state, err := m.datasets().State(t.Context(), &headracev1.StateRequest{Name: "clicks"})
	if err != nil || state.Partitions[0].Retention.GetBy() != "age" {
		t.Errorf("%v (%v)", state, err)
	}
	m.srv.SetRetention(1, nil)
	for series := range scrape(t, reg) {
		if strings.HasPrefix(series, "headrace_retention") {
			t.Errorf("%s is still there", series)
		}
	}
	m.must(m.stop())
}

// The first scrape shows how old the data is.
func TestTheAgeOfDataIsKnownAtTheFirstScrape(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := startMaster(t, memstore.New(), func(c *serve.Config) { c.Registerer = reg })
	defer m.stop()
	m.setUp(100)
	deadline := time.Now().Add(time.Minute)
	for !m.srv.Metered(1) {
		if time.Now().After(deadline) {
			t.Fatal("the counts were not looked at")
		}
		time.Sleep(time.Millisecond)
	}
	if v := scrape(t, reg)[`headrace_data_age_seconds{dataset="clicks"}`]; v <= 0 {
		t.Errorf("headrace_data_age_seconds is %v at the first scrape", v)
	}
}

func TestARewindTakesNothingFromTheCountOfSettledRecords(t *testing.T) {
	noLeaks(t)
	reg, l := prometheus.NewRegistry(), &looks{asked: make(chan string, 16)}
	m := startMaster(t, memstore.New(), func(c *serve.Config) { l.set(c); c.Registerer = reg })
	m.setUp(1000)
	a := m.joined("a", 0)
	first := a.saved(1, 7, "/ckpt/1")
	a.bound(50, 7, "/ckpt/1")
	a.saved(2, 8, "/ckpt/2")
	a.bound(51, 8, "/ckpt/2")
	const series = `headrace_records_total{dataset="clicks",outcome="acked",unit="bytes"}`
	if v := scrape(t, reg)[series]; v != 200 {
		t.Fatalf("%s is %v, want 200", series, v)
	}
	if _, err := m.ckpt().Rewind(t.Context(), &headracev1.RewindRequest{Job: "job", Body: first.Body, Path: "/ckpt/1"}); err != nil {
		t.Fatal(err)
	}
	got := scrape(t, reg)
	if v, p := got[series], got[`headrace_backlog_records{dataset="clicks",partition="files:clicks",stage="pending",unit="bytes"}`]; v != 200 || p != 100 {
		t.Errorf("after a rewind by 100 bytes, %s is %v and %v are pending, want 200 and 100", series, v, p)
	}
	a.hangUp()
	m.must(m.stop())
}
