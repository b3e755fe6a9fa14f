package master

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// A source is asked which records are too old (catch_up.drop_older_than) each twentieth of
// that age, but not more often than ageEveryLeast and not less often than ageEvery.
const (
	ageEvery      = 10 * time.Second
	ageEveryLeast = time.Second
	clockNews     = time.Minute // a clock that was set forward by more is worth a warning
)

// agesEvery returns how often the source is asked, or 0 if no record is ever too old.
func (l *listing) agesEvery() time.Duration {
	age := time.Duration(l.spec.CatchUp.DropOlderThan)
	if age <= 0 {
		return 0
	}
	return min(max(age/20, ageEveryLeast), ageEvery)
}

// ages tells the shard service which records of each partition are too old. It says so again
// even if nothing has changed: the shard service forgets it when the spec changes.
func (f *following) ages(ctx context.Context) error {
	age := time.Duration(f.spec.CatchUp.DropOlderThan)
	if age <= 0 {
		return nil
	}
	dater, ok := f.src.(sources.Dater)
	if !ok {
		return errors.New("its kind says that it finds records by their time, and it does not")
	}
	ds, err := f.state(ctx)
	if err != nil || ds == nil || len(ds.Partitions) == 0 {
		return err
	}
	ids := make([]sources.PartitionID, len(ds.Partitions))
	for i := range ids {
		ids[i] = ds.Partitions[i].Identity
	}
	f.warnOfClock()
	places, err := dater.Since(ctx, ids, f.clock.Earliest().Add(-age))
	if err != nil {
		return err
	}
	all := make([]serve.Old, len(places))
	for i, at := range places {
		all[i] = serve.Old{Partition: ds.Partitions[i].Number, Before: at, Reason: tooOld(f.spec)}
	}
	return f.srv.Aged(ctx, all)
}

// warnOfClock warns once if the clock was set forward by more than clockNews.
func (f *following) warnOfClock() {
	if ahead := f.clock.Ahead(); ahead > clockNews && !f.warned {
		f.warned = true
		f.log.Warn("the master's clock was set forward, or its machine was suspended. catch_up.drop_older_than goes on with the old time, so that no record is left out too early; start the master again if its clock is right now",
			"by", ahead.Round(time.Second))
	}
}

// tooOld returns the reason with which records are excluded.
func tooOld(spec *dataset.Spec) string {
	return fmt.Sprintf("older than %s when its turn came (catch_up.drop_older_than)", spec.CatchUp.DropOlderThan)
}
