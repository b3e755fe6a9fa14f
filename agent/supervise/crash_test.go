package supervise

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
)

func TestOnlyWhatAProcessDoesToItselfIsACrash(t *testing.T) {
	for _, c := range []struct {
		end   End
		crash bool
	}{
		{End{Signal: syscall.SIGSEGV}, true},
		{End{Signal: syscall.SIGBUS}, true},
		{End{Signal: syscall.SIGABRT}, true},
		{End{Code: 139}, true}, // a shell's code for a child that was killed by SIGSEGV
		{End{Signal: syscall.SIGKILL}, false},
		{End{Signal: syscall.SIGTERM}, false},
		{End{Code: 137}, false},
		{End{Code: 1}, false},
		{End{}, false},
	} {
		if c.end.Crashed() != c.crash {
			t.Errorf("%s: Crashed is %v, want %v", c.end.Status(), c.end.Crashed(), c.crash)
		}
	}
}

// When one trainer has crashed, the others are ended. Their ends do not count as crashes, whatever
// signal ends them.
func TestAWorkerThatWasToldToEndHasNotCrashed(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	cfg := sh(`if [ $RANK = 0 ]; then trap 'kill -ABRT $$' TERM; touch ` + ready + `; while :; do sleep 0.02; done
		else while [ ! -e ` + ready + ` ]; do sleep 0.02; done; kill -SEGV $$; fi`)
	cfg.NProcPerNode = 2
	var mu sync.Mutex
	var crashed []bool
	cfg.Reaped = func(_ int, crash bool) {
		mu.Lock()
		defer mu.Unlock()
		crashed = append(crashed, crash)
	}
	var failed *Failed
	if err := Run(t.Context(), cfg); !errors.As(err, &failed) || len(failed.Ends) != 2 || failed.Ends[1].Signal != syscall.SIGABRT {
		t.Fatalf("%+v", err)
	}
	if !slices.Equal(crashed, []bool{true, false}) {
		t.Errorf("in the order of the ends, the trainers have crashed: %v; want only the first", crashed)
	}
}
