package kafka

import "testing"

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
	if e.before[p] != (reached{5, 100}) || e.heads[p.id()] != (reached{9, 60}) {
		t.Errorf("%+v, %+v", e.before, e.heads)
	}
}
