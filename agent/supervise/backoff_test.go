package supervise

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asked is a Backoff that notes the numbers of failures that it was called with.
type asked struct {
	mu    sync.Mutex
	n     []int
	pause time.Duration
}

func (a *asked) backoff(n int) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n = append(a.n, n)
	return a.pause
}

func TestTheBackoffGrowsFromNothingToHalfAMinute(t *testing.T) {
	var got []time.Duration
	for n := range 9 {
		got = append(got, backoff(n))
	}
	if want := []time.Duration{0, 0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if backoff(1000) != 30*time.Second {
		t.Error(backoff(1000))
	}
}

func TestAWorkerThatFailsAgainAndAgainIsStartedLaterEachTime(t *testing.T) {
	for _, model := range []string{Shared, Replicated} {
		a := &asked{pause: time.Millisecond}
		cfg := sh(`echo start; exit 3`)
		cfg.MaxRestarts, cfg.Model, cfg.Backoff = 4, model, a.backoff
		err := Run(t.Context(), cfg)
		if _, ok := errors.AsType[*Failed](err); !ok || strings.Count(cfg.Out.(*lines).String(), "start") != 5 {
			t.Errorf("%s: %v\n%s", model, err, cfg.Out)
		}
		if !slices.Equal(a.n, []int{1, 2, 3, 4}) {
			t.Errorf("%s: the backoff was called with %v, want 1 to 4", model, a.n)
		}
	}
}

func TestAWorkerThatWasKilledStartsAtOnce(t *testing.T) {
	a := &asked{}
	cfg := sh(`[ $HEADRACE_ATTEMPT = 3 ] || kill -9 $$`)
	cfg.MaxRestarts, cfg.Model, cfg.Backoff = 4, Shared, a.backoff
	if err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.n, []int{0, 0, 0}) {
		t.Errorf("the backoff was called with %v, want 0 three times", a.n)
	}
}

func TestASignalEndsARunThatWaitsForItsBackoff(t *testing.T) {
	for _, model := range []string{Shared, Replicated} {
		cfg := sh(`exit 3`)
		signals := make(chan os.Signal, 1)
		cfg.MaxRestarts, cfg.Model, cfg.Signals = 4, model, signals
		cfg.Backoff = func(int) time.Duration {
			signals <- syscall.SIGTERM // it is read while the run waits
			return time.Hour
		}
		out := make(chan error, 1)
		go func() { out <- Run(t.Context(), cfg) }()
		select {
		case err := <-out:
			f, ok := errors.AsType[*Failed](err)
			if !ok || len(f.Ends) != 1 || f.Ends[0].Code != 3 {
				t.Errorf("%s: %v", model, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s: the run did not end after SIGTERM", model)
		}
	}
}

func TestAnErrorOfACheckpointIsNotRetried(t *testing.T) {
	for _, model := range []string{Shared, Replicated} {
		cfg := sh(`echo start; echo "CheckpointError: /ckpt is damaged" > "$HEADRACE_ENDED_BY"; exit 1`)
		cfg.MaxRestarts, cfg.Model = 4, model
		err := Run(t.Context(), cfg)
		if strings.Count(cfg.Out.(*lines).String(), "start") != 1 || err == nil || !strings.Contains(err.Error(), "it is not started again") {
			t.Errorf("%s: %v\n%s", model, err, cfg.Out)
		}
	}
}
