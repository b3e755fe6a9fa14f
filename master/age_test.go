package master

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/wallclock"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// ageing is a ledger of one live partition.
type ageing struct {
	ledger
	spec *dataset.Spec
	told []serve.Old
}

func (a *ageing) Datasets(context.Context) ([]serve.Dataset, error) {
	return []serve.Dataset{{ID: 1, Spec: a.spec, Partitions: []serve.Partition{{Number: 1, Identity: "river:0"}}}}, nil
}

func (a *ageing) Aged(_ context.Context, all []serve.Old) error {
	a.told = all
	return nil
}

// minutes is a source that has one record a minute.
type minutes struct {
	sources.Source
	began time.Time // the time of the record with offset 0
}

func (m minutes) Since(_ context.Context, _ []sources.PartitionID, t time.Time) ([]sources.Position, error) {
	return []sources.Position{{Offset: int64(t.Sub(m.began) / time.Minute)}}, nil
}

// The source has the records of 12 hours, one a minute. Those older than 6h are left out.
func TestAClockThatIsSetForwardLeavesOutNoRecordThatIsYoungEnough(t *testing.T) {
	spec, err := dataset.Parse([]byte(liveSpec+"catch_up: {drop_older_than: 6h}\n"), "spec.yaml")
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	clock, set := wallclock.Settable(started)
	a := &ageing{spec: spec}
	var log bytes.Buffer
	f := &following{listing: &listing{srv: a, id: 1, spec: spec, clock: clock, log: slog.New(slog.NewTextHandler(&log, nil))}, src: minutes{began: started.Add(-12 * time.Hour)}}
	for _, c := range []struct {
		jump, ran time.Duration
		before    int64 // records before this offset are too old then
	}{
		{0, 0, 6 * 60},
		{0, time.Hour, 7 * 60},
		{7 * time.Hour, time.Hour, 7 * 60}, // set forward: that makes no record too old
		{7 * time.Hour, 2 * time.Hour, 8 * 60},
		{-3 * time.Hour, 2 * time.Hour, 5 * 60}, // set back: records become too old later, never earlier
		{0, 2 * time.Hour, 8 * 60},
	} {
		set(c.jump, c.ran)
		if err := f.ages(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := a.told[0].Before.Offset; got != c.before {
			t.Errorf("the clock was set by %v and %v have passed: the records before %d are too old, want %d", c.jump, c.ran, got, c.before)
		}
	}
	if said := strings.Count(log.String(), "clock was set forward"); said != 1 {
		t.Errorf("the log says %d times that the clock was set, want once:\n%s", said, log.String())
	}
}
