package kafka

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/headrace/headrace/sources"
)

func TestRunsOfOneEpochGrowTogetherAndTheOlderEpochCounts(t *testing.T) {
	e := newEpochs()
	for _, r := range []run{{100, 200, 4}, {300, 400, 4}, {200, 300, 4}, {400, 500, 5}, {450, 500, 7}, {0, 50, -1}, {60, 60, 3}} {
		e.read("p", r)
	}
	for offset, want := range map[int64]int32{0: -1, 50: -1, 60: -1, 100: -1, 101: 4, 250: 4, 400: 4, 401: 5, 500: 5, 501: -1} {
		if got := e.at("p", offset); got != want {
			t.Errorf("before %d: epoch %d, want %d", offset, got, want)
		}
	}
	if len(e.runs["p"]) != 3 || e.at("q", 150) != unknownEpoch {
		t.Errorf("%+v", e.runs)
	}
	for i := range int64(3 * runsMost) {
		e.read("p", run{1000 + 10*i, 1005 + 10*i, 8})
	}
	if n := len(e.runs["p"]); n != runsMost {
		t.Errorf("%d runs are kept", n)
	}
	if last := int64(1000 + 10*(3*runsMost-1)); e.at("p", last+1) != 8 {
		t.Error("the newest run of offsets was forgotten")
	}
}

func TestOnlyANewerLeaderIsAskedAbout(t *testing.T) {
	e, p := newEpochs(), partition{cluster: "c", topic: topicID{1}, name: "t", number: 3}
	for _, h := range []reached{{5, 100}, {5, 90}, {4, 300}, {-1, 400}} {
		e.headIs(p, h)
	}
	if len(e.before) > 0 || e.heads[p.id()] != (reached{5, 100}) {
		t.Fatalf("%+v, %+v", e.before, e.heads)
	}
	e.headIs(p, reached{7, 50})
	e.headIs(p, reached{9, 60})
	if !slices.Equal(e.before[p], []reached{{5, 100}, {7, 50}}) || e.heads[p.id()] != (reached{9, 60}) {
		t.Errorf("%+v, %+v", e.before, e.heads)
	}
	for epoch := range int32(3 * leadersMost) {
		e.headIs(p, reached{10 + epoch, 60})
	}
	if all := e.before[p]; len(all) != leadersMost || all[leadersMost-1].epoch != 10+3*leadersMost-2 {
		t.Errorf("%+v", all)
	}
}

// Several leaders are replaced before Compare gets an answer.
func TestEachReplacedLeaderIsAskedAbout(t *testing.T) {
	for name, c := range map[string]struct {
		heads []reached
		ends  map[int32]int64 // of the epochs in the newest leader's log
		want  sources.Replaced
	}{
		"the newest lacks records of the second": {[]reached{{4, 100}, {5, 110}, {6, 120}}, map[int32]int64{4: 100, 5: 105}, sources.Replaced{From: 105, Before: 110}},
		"of the first":                           {[]reached{{4, 100}, {5, 110}, {6, 120}}, map[int32]int64{4: 90, 5: 110}, sources.Replaced{From: 90, Before: 100}},
		"of both":                                {[]reached{{4, 100}, {5, 110}, {6, 120}}, map[int32]int64{4: 90, 5: 90}, sources.Replaced{From: 90, Before: 110}},
		"of both, and the second reached less":   {[]reached{{4, 100}, {5, 95}, {6, 120}}, map[int32]int64{4: 80, 5: 90}, sources.Replaced{From: 80, Before: 100}},
		"of none":                                {[]reached{{4, 100}, {5, 110}, {6, 120}}, map[int32]int64{4: 100, 5: 110}, sources.Replaced{}},
	} {
		e, p := newEpochs(), partition{cluster: "c", topic: topicID{1}, name: "t", number: 3}
		for _, h := range c.heads {
			e.headIs(p, h)
		}
		answers := false
		end := func(_ context.Context, _ partition, epoch int32) (int64, error) {
			if epoch == 5 && !answers {
				return 0, errors.New("no leader")
			}
			return c.ends[epoch], nil
		}
		if found, err := e.compare(t.Context(), end); err == nil || len(found) > 0 {
			t.Errorf("%s: without an answer: %+v, %v", name, found, err)
		}
		answers = true
		found, err := e.compare(t.Context(), end)
		var want []sources.Replaced
		if c.want.Before > 0 {
			c.want.Partition = p.id()
			want = append(want, c.want)
		}
		if err != nil || !slices.Equal(found, want) {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
		if found, err := e.compare(t.Context(), end); err != nil || len(found) > 0 || len(e.before) > 0 {
			t.Errorf("%s: again: %+v, %v, %+v", name, found, err, e.before)
		}
	}
}

func TestAPartitionThatCannotBeComparedDoesNotKeepTheOthers(t *testing.T) {
	e := newEpochs()
	for number := range int32(8) {
		p := partition{cluster: "c", topic: topicID{1}, name: "t", number: number}
		e.headIs(p, reached{4, 100})
		e.headIs(p, reached{5, 100})
	}
	found, err := e.compare(t.Context(), func(_ context.Context, p partition, _ int32) (int64, error) {
		if p.number < 2 {
			return 0, errors.New("no leader")
		}
		return 90, nil
	})
	if err == nil || len(found) != 6 || len(e.before) != 2 {
		t.Errorf("%+v, %v, %+v", found, err, e.before)
	}
	asked := 0
	for number := range int32(8) {
		e.headIs(partition{cluster: "c", topic: topicID{1}, name: "t", number: number}, reached{6, 100})
	}
	if _, err = e.compare(t.Context(), func(context.Context, partition, int32) (int64, error) {
		asked++
		return 0, errors.New("no broker answers")
	}); err == nil || asked != failuresMost {
		t.Errorf("%d partitions were asked about, %v", asked, err)
	}
}
