package chaos

import (
	"strings"
	"testing"
	"time"
)

// small is one dataset of 6 records, which tests read in batches of two.
func small(strict bool) []*input {
	return []*input{{name: "small", records: 6, passes: 1, strict: strict}}
}

func two(number, first int, applied int64) *batch {
	return &batch{stream: 1, number: number, keys: []key{key(first), key(first + 1)}, yielded: applied - 1, applied: applied, stepped: applied}
}

func well(rank int, batches ...*batch) *life {
	return &life{rank: rank, no: 1, batches: batches, done: true, ended: int64(time.Hour), status: "exit status 0"}
}

func killed(rank int, at int64, batches ...*batch) *life {
	return &life{rank: rank, no: 1, batches: batches, ended: at, status: "signal: killed"}
}

func TestAllOnceIsRight(t *testing.T) {
	for _, model := range []string{"shared", "private", "replicated"} {
		v := judge(model, small(true), []*life{well(0, two(1, 0, 10), two(2, 2, 20)), well(1, two(1, 4, 30))}, excuses{})
		if v.Lost+v.Twice+v.SharedRepeats+len(v.Wrong) != 0 {
			t.Errorf("%s: %+v", model, v)
		}
	}
}

func TestOneLossIsSeen(t *testing.T) {
	for _, model := range []string{"shared", "private", "replicated"} {
		if v := judge(model, small(false), []*life{well(0, two(1, 0, 10), two(2, 4, 20))}, excuses{}); v.Lost != 2 {
			t.Errorf("%s: %+v", model, v)
		}
	}
}

func TestARepeatNeedsAnEndWithTheBatchInHand(t *testing.T) {
	second := int64(time.Second)
	rest := []*batch{two(1, 0, 100*second), two(2, 2, 101*second), two(3, 4, 102*second)}
	unstepped := two(1, 0, 50*second)
	unstepped.stepped = 0
	durable := two(1, 0, 50*second)
	durable.durableWhenLastStepped = true
	lost := func(l *life, at int64) *life {
		l.givenUp = []int64{at * second}
		return l
	}
	left := killed(1, 51*second, unstepped)
	left.done = true
	behind := func(ended int64, stood ...disturbance) *life { // it applies its batch at 150 s, after the others have
		b := two(1, 0, 150*second)
		b.yielded = 50 * second
		l := killed(1, ended*second, b)
		l.stood = stood
		return l
	}
	sent := behind(60)
	sent.batches[0].stepped = 0
	away := func(agent int, from, to int64) disturbance { return disturbance{from * second, to * second, agent} }
	before := two(1, 4, 20*second) // a first batch long before, so its process was let in
	stepped := func() *life { return killed(1, 51*second, before, two(2, 0, 50*second)) }
	for _, c := range []struct {
		name      string
		first     *life
		disturbed []disturbance
		twice     int
	}{
		{"killed with the batch in hand", killed(1, 51*second, unstepped), nil, 0},
		{"killed after step(), while its agent and the master were away, and not given up", stepped(), []disturbance{away(-1, 45, 55), away(0, 45, 55)}, 2},
		{"killed after step(), and given up when its agent was away for long enough", lost(stepped(), 60), []disturbance{away(0, 49, 65)}, 0},
		{"given up when first the master and then its agent was away", lost(stepped(), 60), []disturbance{away(-1, 49, 56), away(0, 55, 65)}, 0},
		{"given up, although its agent and the master ran together for a second", lost(stepped(), 60), []disturbance{away(-1, 49, 54), away(0, 55, 65)}, 0},
		{"given up when its agent was away for too short a time", lost(stepped(), 60), []disturbance{away(0, 57, 65)}, 2},
		{"given up while its agent and the master ran", lost(stepped(), 60), nil, 2},
		{"given up while another agent was away", lost(stepped(), 60), []disturbance{away(1, 45, 65)}, 2},
		{"given up only after another trainer had the batch", lost(stepped(), 120), []disturbance{away(0, 49, 125)}, 2},
		{"killed after its step was durable", killed(1, 51*second, durable), nil, 2},
		{"left the job with the batch in hand", left, nil, 0},
		{"frozen with the batch in hand until others had it, and given up", lost(behind(151, away(0, 55, 149)), 80), nil, 0},
		{"frozen with the batch in hand until others had it, and not given up", behind(151, away(0, 55, 149)), nil, 2},
		{"frozen after others had it", lost(behind(151, away(0, 120, 149)), 80), []disturbance{away(0, 60, 90)}, 2},
		{"running with the batch in hand until others had it", behind(151), nil, 2},
		{"killed when the server had the batch and had not added it", sent, nil, 0},
		{"ended well", well(1, two(1, 0, 50*second)), nil, 2},
		{"still running when another trainer had the batch", killed(1, 200*second, unstepped), nil, 2},
	} {
		others := rest
		if len(c.first.batches) == 2 {
			others = rest[:2]
		}
		v := judge("shared", small(false), []*life{c.first, well(0, others...)}, excuses{c.disturbed, 10 * time.Second})
		if v.Lost != 0 || v.Twice != c.twice || v.SharedRepeats != 2-c.twice {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

func TestOnlyTheLastLifeOfAPrivateRankCounts(t *testing.T) {
	first := killed(0, 50, two(1, 0, 10), two(2, 2, 20))
	last := well(0, two(1, 0, 60), two(2, 2, 70), two(3, 4, 80))
	last.no = 2
	if v := judge("private", small(false), []*life{first, last}, excuses{}); v.Lost+v.Twice+len(v.Wrong) != 0 {
		t.Errorf("%+v", v)
	}
	if v := judge("private", small(false), []*life{last, well(1, two(1, 2, 90))}, excuses{}); v.Twice != 2 {
		t.Errorf("%+v", v)
	}
}

func TestAnotherOrderThanStrictIsSeen(t *testing.T) {
	for _, lives := range [][]*life{
		{well(0, two(1, 2, 10), two(2, 0, 20), two(3, 4, 30))},
		{well(0, two(1, 0, 10), two(2, 4, 20)), well(1, two(1, 2, 30))},
	} {
		if v := judge("shared", small(true), lives, excuses{}); len(v.Wrong) == 0 || !strings.Contains(v.Wrong[0], "strict") {
			t.Errorf("%+v", v)
		}
	}
}

func TestAPrivateStreamGoesBackOnlyForALostRank(t *testing.T) {
	back := well(0, two(1, 2, 10), two(2, 4, 20), two(3, 0, 40))
	first := killed(1, 25, two(1, 0, 5))
	next := well(1)
	next.no, next.began = 2, 30
	if v := judge("private", small(true), []*life{back, first, next}, excuses{}); v.Lost+v.Twice+len(v.Wrong) != 0 {
		t.Errorf("%+v", v)
	}
	if v := judge("private", small(true), []*life{back, first}, excuses{}); len(v.Wrong) == 0 {
		t.Errorf("%+v", v)
	}
}

func TestWhatAConsumerGroupLosesAndRepeatsIsCounted(t *testing.T) {
	inHand := two(2, 2, 20) // committed by the library and never applied
	inHand.applied = 0
	lives := []*life{
		killed(0, 25, two(1, 0, 10), inHand),
		well(0, two(1, 0, 30), two(2, 4, 40)),
		well(1, two(1, 0, 50)),
	}
	v := judgeGroup(small(false)[0], lives)
	if v.Lost != 2 || v.Twice != 2 || v.Repeats != 4 || len(v.Wrong) != 0 {
		t.Errorf("%+v", v)
	}
	if v := judgeGroup(small(false)[0], []*life{well(0, two(1, 6, 10))}); len(v.Wrong) == 0 {
		t.Errorf("records that were never produced are not reported: %+v", v)
	}
}
