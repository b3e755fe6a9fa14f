package serve

import (
	"context"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
)

func TestBlockedTimeIsWhatTheLoopCouldNotRead(t *testing.T) {
	const ms = shardsvc.Millisecond
	for _, c := range []struct {
		what string
		do   func(b *blocked)
		want shardsvc.Time
	}{
		{"idle for a second", func(b *blocked) { b.sleep(0); b.woke(1000*ms, 2000*ms) }, 0},
		{"woken on time", func(b *blocked) { b.sleep(0); b.woke(1001*ms, 1000*ms) }, 0},
		{"stood still until long after its deadline", func(b *blocked) { b.sleep(0); b.woke(5000*ms, 1000*ms) }, 4000 * ms},
		{"worked for 80 ms on end", func(b *blocked) { b.woke(10*ms, shardsvc.Never); b.sleep(90 * ms) }, 80 * ms},
		{"waited 300 ms for the committer", func(b *blocked) {
			b.begin(100 * ms)
			b.sleep(100 * ms)
			b.woke(200*ms, 150*ms) // a timer fires while the loop waits
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
			t.Errorf("%s: the blocked time was counted twice", c.what)
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
			t.Errorf("age is %v and drain time %v, want %+v", age, drain, c)
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

func TestTheRateOfAWorkerIsWhatItHasAckedInTheLastSeconds(t *testing.T) {
	var m meter
	start := time.Now()
	w := shardsvc.WorkerInfo{Rank: 3, Incarnation: 9, Rate: 258_959}
	for s := range 60 { // 500 a second for half a minute, then nothing
		w.UnitsAcked = uint64(500 * min(s, 30))
		now := start.Add(time.Duration(s) * time.Second)
		m.add(now, []shardsvc.WorkerInfo{w})
		switch got := m.rate(&w, now); {
		case s == 0 && got != 0, s > 0 && s <= 30 && math.Abs(got-500) > 1, s > 42 && got != 0:
			t.Errorf("after %d s the rate is %v/s, want 500 up to 30 s and 0 from 43 s on", s, got)
		}
	}
	other := shardsvc.WorkerInfo{Rank: 3, Incarnation: 10, UnitsAcked: 7}
	if got := m.rate(&other, start); got != 0 {
		t.Errorf("a new process of the rank has the rate %v/s, want 0", got)
	}
	m.add(start.Add(time.Hour), nil)
	if len(m.workers) != 0 {
		t.Error("processes that are gone are remembered")
	}
}

func TestTheEventTimeLagIsThatOfThePartitionThatIsFurthestBehind(t *testing.T) {
	now := time.UnixMilli(1_700_000_060_000)
	for _, tc := range []struct {
		newest, reached int64
		want            float64 // -1: unknown
	}{{0, 0, -1}, {1_700_000_059_000, 0, 0}, {1_700_000_059_000, 1_700_000_000_000, 60}, {1_800_000_000_000, 1_800_000_000_000, 0}} {
		got := eventLag(&shardsvc.DatasetInfo{Records: cut.Tally{Newest: tc.newest}, Reached: tc.reached}, now)
		if got == nil && tc.want != -1 || got != nil && *got != tc.want {
			t.Errorf("%+v: the lag is %v", tc, got)
		}
	}
}

func TestACheckpointThatWasNotFoundHasNoAge(t *testing.T) {
	looked := make(chan struct{})
	s := &Server{stopping: make(chan struct{}), alive: t.Context(), cfg: Config{Logger: slog.New(slog.DiscardHandler),
		Look: func(context.Context, string, cut.ID) (bool, time.Time, error) {
			close(looked)
			return false, time.Time{}, nil
		}}}
	s.resolve(7, "/ckpt/7")
	<-looked
	close(s.stopping)
	s.readers.Wait()
	if age, _ := s.bindings.age(7); age != 0 {
		t.Errorf("a checkpoint that was not found is said to be bound %v ago", age)
	}
}
