package serve

import (
	"math"
	"testing"
	"time"

	"github.com/headrace/headrace/shardsvc"
)

func TestBlockedTimeIsWhatTheLoopCouldNotRead(t *testing.T) {
	const ms = shardsvc.Millisecond
	for _, c := range []struct {
		what string
		do   func(b *blocked)
		want shardsvc.Time
	}{
		{"idle for a second", func(b *blocked) { b.sleep(0); b.woke(1000*ms, 2000*ms) }, 0},
		{"waked on time", func(b *blocked) { b.sleep(0); b.woke(1001*ms, 1000*ms) }, 0},
		{"stood still until long after its deadline", func(b *blocked) { b.sleep(0); b.woke(5000*ms, 1000*ms) }, 4000 * ms},
		{"worked for 80 ms on end", func(b *blocked) { b.woke(10*ms, shardsvc.Never); b.sleep(90 * ms) }, 80 * ms},
		{"waited 300 ms for the committer", func(b *blocked) {
			b.begin(100 * ms)
			b.sleep(100 * ms)
			b.woke(200*ms, 150*ms) // a timer, while it waited
			b.begin(200 * ms)
			b.sleep(200 * ms)
			b.woke(400*ms, shardsvc.Never)
			b.end(400 * ms)
			b.sleep(400 * ms)
		}, 300 * ms},
	} {
		var b blocked
		b.start(0)
		c.do(&b)
		if got := b.take(); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
		if b.take() != 0 {
			t.Errorf("%s: counted twice", c.what)
		}
	}
}

func TestAgeAndDrainTimeFollowWhatWasListedAndSettled(t *testing.T) {
	var tr track
	at := time.Unix(1000, 0)
	look := func(after time.Duration, listed, settled int64) (age, drain float64) {
		at = at.Add(after)
		return tr.seen(at, shardsvc.Counts{Listed: listed, Settled: settled})
	}
	for _, c := range []struct {
		after           time.Duration
		listed, settled int64
		age, drain      float64
	}{
		{0, 100, 0, 0, math.Inf(1)},
		{10 * time.Second, 200, 50, 10, 30}, // 5/s, 150 to go
		{10 * time.Second, 200, 100, 10, 20},
		{10 * time.Second, 200, 200, 0, 0},
		{10 * time.Second, 300, 200, 0, 20},
	} {
		age, drain := look(c.after, c.listed, c.settled)
		if age != c.age || drain != c.drain {
			t.Errorf("%+v: age %v drain %v", c, age, drain)
		}
	}
	for i := range int64(5000) {
		look(time.Millisecond, 300+i, 200)
	}
	if len(tr.listed) > trackSamples || len(tr.settled) > trackSamples+1 {
		t.Errorf("%d and %d samples are kept", len(tr.listed), len(tr.settled))
	}
}

func TestAnAgentThatWasJustHeardIsNotHeardInTheFuture(t *testing.T) {
	a := shardsvc.AgentInfo{Name: "node0", Session: 1, LastHeard: 3 * shardsvc.Second}
	if got := agentProto(a, nil, 2*shardsvc.Second).LastHeardSeconds; got != 0 {
		t.Errorf("heard %v s ago, want 0", got)
	}
	if got := agentProto(a, nil, 5*shardsvc.Second).LastHeardSeconds; got != 2 {
		t.Errorf("heard %v s ago, want 2", got)
	}
}
