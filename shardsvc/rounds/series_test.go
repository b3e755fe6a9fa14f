package rounds

import "testing"

// still is a master that has nothing pending. Its ranks know all their leases.
type still struct{}

func (still) Pending(int) bool  { return false }
func (still) Newest(int) uint64 { return 0 }
func (still) Moving() bool      { return false }
func (still) Settled() bool     { return false }

func decide(t *testing.T, s *Series, now int64, want Decision) {
	t.Helper()
	if d, _ := s.Decide(now, still{}); d != want {
		t.Fatalf("at %d: decided %+v, want %+v", now, d, want)
	}
}

func TestARoundGoesWhenAllRanksHaveIt(t *testing.T) {
	s := New(Options{World: 3})
	decide(t, s, 0, Decision{})
	s.Report(0, Report{Through: 4, More: true})
	s.Report(1, Report{Through: 2, More: true})
	decide(t, s, 0, Decision{}) // rank 2 has not been heard
	s.Report(2, Report{Through: 3})
	decide(t, s, 0, Decision{Through: 2})
	s.Report(1, Report{Through: 4})
	decide(t, s, 0, Decision{Through: 3})
}

func TestWhatAProcessHasItKeeps(t *testing.T) {
	s := New(Options{World: 2, Endless: true})
	s.Report(0, Report{Through: 5})
	s.Report(1, Report{Through: 5})
	decide(t, s, 0, Decision{Through: 5})
	s.Report(1, Report{Through: 3}) // a late message
	decide(t, s, 0, Decision{Through: 5})
}

func TestTheLastRoundIsKnownWhenItGoes(t *testing.T) {
	s := New(Options{World: 2})
	s.Report(0, Report{Through: 3})
	s.Report(1, Report{Through: 3, Drained: true})
	decide(t, s, 0, Decision{Through: 2}) // round 3 may be the last one
	s.Report(0, Report{Through: 3, Drained: true})
	decide(t, s, 0, Decision{Through: 3, Last: true})
	s.Report(0, Report{Through: 3, More: true})
	decide(t, s, 9, Decision{Through: 3, Last: true}) // it stays
}

func TestAnInputWithoutRowsEndsBeforeRoundOne(t *testing.T) {
	s := New(Options{World: 2})
	s.Report(0, Report{Drained: true})
	s.Report(1, Report{Drained: true})
	decide(t, s, 0, Decision{Last: true})
}

func TestAnInputWithoutEndHasNoLastRound(t *testing.T) {
	s := New(Options{World: 1, Endless: true})
	s.Report(0, Report{Through: 1, Drained: true})
	decide(t, s, 0, Decision{Through: 1})
}

func TestDrainedRanksCloseTheRoundOnceNothingIsStolenForThem(t *testing.T) {
	s := New(Options{World: 3, Settle: 100})
	s.Report(0, Report{Through: 7})
	s.Report(1, Report{Through: 5, Drained: true})
	s.Report(2, Report{Through: 5, Drained: true, More: true})
	decide(t, s, 10, Decision{Through: 5})
	if _, wake := s.Decide(10, still{}); wake != 110 {
		t.Fatalf("wakes at %d, want 110", wake)
	}
	s.Report(1, Report{Through: 5}) // rows were stolen for it
	decide(t, s, 110, Decision{Through: 5})
	s.Report(1, Report{Through: 5, Drained: true})
	decide(t, s, 200, Decision{Through: 5})
	decide(t, s, 300, Decision{Through: 5, Close: 6})
	s.Report(1, Report{Through: 6, Drained: true})
	s.Report(2, Report{Through: 6, Drained: true})
	decide(t, s, 300, Decision{Through: 6})
}

func TestMaxWaitClosesARoundThatHasARow(t *testing.T) {
	s := New(Options{World: 2, Endless: true, MaxWait: 50})
	s.Report(0, Report{})
	s.Report(1, Report{})
	decide(t, s, 0, Decision{})
	decide(t, s, 1000, Decision{}) // no row anywhere: nothing closes
	s.Report(1, Report{More: true})
	decide(t, s, 1000, Decision{})
	decide(t, s, 1049, Decision{})
	decide(t, s, 1050, Decision{Close: 1})
	s.Report(0, Report{Through: 1})
	s.Report(1, Report{Through: 1})
	decide(t, s, 1050, Decision{Through: 1})
}

func TestAFullRoundDoesNotWaitLongerThanMaxWaitToKnowWhetherItIsTheLast(t *testing.T) {
	s := New(Options{World: 1, MaxWait: 50})
	s.Report(0, Report{Through: 1})
	decide(t, s, 0, Decision{})
	decide(t, s, 50, Decision{Through: 1})
}

type pending struct{ still }

func (pending) Pending(int) bool { return true }

type leased struct{ still }

func (leased) Newest(rank int) uint64 { return uint64(rank) }

func TestTheEndIsNotDecidedWhileRowsMayStillCome(t *testing.T) {
	s := New(Options{World: 2})
	s.Report(0, Report{Through: 1, Drained: true})
	s.Report(1, Report{Through: 1, Drained: true})
	for _, v := range []View{pending{}, leased{}} { // leased: rank 1 has a lease that it does not know yet
		if d, _ := s.Decide(0, v); d.Last || d.Through != 0 {
			t.Fatalf("%T: decided %+v, want no last round", v, d)
		}
	}
	s.Report(1, Report{Through: 1, Drained: true, Newest: 1})
	if d, _ := s.Decide(0, leased{}); d != (Decision{Through: 1, Last: true}) {
		t.Fatalf("decided %+v", d)
	}
}

func TestNothingGoesAfterASeriesWasEnded(t *testing.T) {
	s := New(Options{World: 2, Endless: true})
	s.Report(0, Report{Through: 2})
	s.Report(1, Report{Through: 1})
	decide(t, s, 0, Decision{Through: 1})
	s.End("rank 1 closed its stream")
	s.Report(1, Report{Through: 2})
	decide(t, s, 0, Decision{Through: 1, Over: "rank 1 closed its stream"})
}

func TestMissingNamesTheRanksThatARoundWaitsFor(t *testing.T) {
	s := New(Options{World: 3, Endless: true})
	s.Report(0, Report{Through: 2})
	s.Report(2, Report{Through: 1})
	decide(t, s, 0, Decision{})
	if m := s.Missing(); len(m) != 1 || m[0] != 1 {
		t.Fatalf("missing %v, want rank 1", m)
	}
	s.Report(1, Report{Through: 2})
	decide(t, s, 0, Decision{Through: 1})
	if m := s.Missing(); len(m) != 1 || m[0] != 2 {
		t.Fatalf("missing %v, want rank 2", m)
	}
}

// A round that will be short is spread before it is closed. So it is closed when max_wait has
// passed, and not later.
func TestAShortRoundIsToldBeforeItIsClosed(t *testing.T) {
	s := New(Options{World: 2, Endless: true, MaxWait: 1000, Spread: 200})
	s.Report(0, Report{More: true})
	s.Report(1, Report{})
	for _, at := range []struct {
		now   int64
		short bool
		close uint32
		wake  int64
	}{{0, false, 0, 800}, {799, false, 0, 800}, {800, true, 0, 1000}, {1000, true, 1, Never}} {
		d, wake := s.Decide(at.now, still{})
		if s.Short() != at.short || d.Close != at.close || wake != at.wake {
			t.Fatalf("at %d: short %v, close %d, wake %d; want %+v", at.now, s.Short(), d.Close, wake, at)
		}
	}
}

func TestWhatAnotherMasterHasDecidedStays(t *testing.T) {
	s := New(Options{World: 2})
	s.Heard(3, true, nil)
	s.Report(0, Report{Through: 3})
	decide(t, s, 0, Decision{Through: 3, Last: true}) // though rank 1 is not heard any more
	s.End("rank 1 has left")
	decide(t, s, 0, Decision{Through: 3, Last: true})
}

type moving struct{ still }

func (moving) Moving() bool { return true }

// With Drop every round is full. Round n goes when every rank has round n+1 too. It also goes if
// it is the last one: some rank does not have round n+1 and gets no more rows.
func TestAFullRoundGoesWhenTheNextOneIsThereOrNoneFollows(t *testing.T) {
	s := New(Options{World: 2, Drop: true, MaxWait: 50, Spread: 20, Settle: 100})
	s.Report(0, Report{Through: 3, More: true})
	s.Report(1, Report{Through: 2, More: true})
	decide(t, s, 0, Decision{Through: 1})
	decide(t, s, 1000, Decision{Through: 1}) // max_wait lets none go
	s.Report(1, Report{Through: 2, More: true, Drained: true})
	decide(t, s, 1000, Decision{Through: 1})
	if !s.Short() {
		t.Fatal("rank 1 is drained, but no rows are spread to it")
	}
	for _, at := range []int64{1100, 1200} { // rows are spread once more, in case the first time was too early
		if d, wake := s.Decide(at, still{}); d != (Decision{Through: 1}) || !s.Short() || wake > at+100 {
			t.Fatalf("at %d: decided %+v, short %v, wakes at %d; want round 1, short, and a wake within 100", at, d, s.Short(), wake)
		}
	}
	if d, _ := s.Decide(1300, moving{}); d != (Decision{Through: 1}) || s.Short() {
		t.Fatalf("rows are on their way, but it decided %+v, short %v; want round 1, not short", d, s.Short())
	}
	if over, done := s.Drops(), s.Done(0); over || done {
		t.Fatalf("before the last round: drops %v, rank 0 done %v; want false", over, done)
	}
	decide(t, s, 1300, Decision{Through: 2, Last: true}) // the rows that rank 0 has for round 3 are dropped
	if !s.Drops() || s.Done(0) {
		t.Fatalf("after the last round: drops %v, rank 0 done %v; want true and false", s.Drops(), s.Done(0))
	}
	s.Report(0, Report{Through: 2, Done: true})
	s.Report(0, Report{Through: 2}) // from a new agent
	if !s.Done(0) || s.Done(1) {
		t.Fatalf("rank 0 is done: %v, rank 1: %v; want only rank 0", s.Done(0), s.Done(1))
	}
}

func TestWithoutAFullRoundTheLastOneIsRoundZero(t *testing.T) {
	s := New(Options{World: 2, Drop: true, Settle: 100})
	s.Report(0, Report{More: true, Drained: true})
	s.Report(1, Report{More: true, Drained: true})
	for _, at := range []int64{0, 100, 200} {
		decide(t, s, at, Decision{})
	}
	decide(t, s, 300, Decision{Last: true})
}

// An input without an end closes no round. Its rows are spread again and again.
func TestFullRoundsOfAnInputWithoutEndWaitForRows(t *testing.T) {
	s := New(Options{World: 2, Drop: true, Endless: true, MaxWait: 1000, Spread: 200})
	s.Report(0, Report{Through: 1, More: true})
	s.Report(1, Report{})
	spread := 0
	for now := int64(0); now < 10_000; now += 100 {
		if d, _ := s.Decide(now, still{}); d != (Decision{}) {
			t.Fatalf("at %d: decided %+v, want no round", now, d)
		}
		if s.Short() && s.Anew() {
			spread++
		}
	}
	if spread != 5 { // at 1,000, and then every 1,800
		t.Fatalf("rows were spread %d times, want 5", spread)
	}
	s.Report(1, Report{Through: 1})
	decide(t, s, 10_000, Decision{Through: 1})
	if s.Drops() {
		t.Fatal("an input without an end drops rows")
	}
}

// settled is a master of a dataset that is done.
type settled struct{ still }

func (settled) Settled() bool { return true }

func TestWithoutRowsThereIsNoRoundWhoeverIsMissing(t *testing.T) {
	s := New(Options{World: 3})
	if d, _ := s.Decide(0, settled{}); d != (Decision{}) {
		t.Errorf("no rank was heard: decided %+v, want no round", d)
	}
	s.Report(1, Report{})
	if d, _ := s.Decide(0, still{}); d != (Decision{}) {
		t.Errorf("rows may still come: decided %+v, want no round", d)
	}
	if d, _ := s.Decide(0, settled{}); d != (Decision{Last: true}) {
		t.Errorf("no row can come: decided %+v, want the end before round 1", d)
	}
	s = New(Options{World: 3}) // a new master
	s.Report(1, Report{Through: 1})
	if d, _ := s.Decide(0, settled{}); d != (Decision{}) {
		t.Errorf("round 1 may have gone under the last master: decided %+v, want no round", d)
	}
}
