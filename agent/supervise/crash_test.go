package supervise

import (
	"errors"
	"os"
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
		{End{Code: 139}, true}, // a shell says it of its child
		{End{Signal: syscall.SIGKILL}, false},
		{End{Signal: syscall.SIGTERM}, false},
		{End{Code: 137}, false},
		{End{Code: 1}, false},
		{End{}, false},
	} {
		if c.end.Crashed() != c.crash {
			t.Errorf("%s: crashed is %v", c.end.Status(), c.end.Crashed())
		}
	}
}

func TestAKillForWantOfMemoryExplainsOneEnd(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/self/cgroup", "0::/job\n")
	events := "sys/fs/cgroup/job/memory.events"
	write(events, "low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
	m := newMemoryKills(root)
	if m.one() {
		t.Error("a kill before the start explains an end")
	}
	write(events, "low 0\noom 4\noom_kill 3\noom_group_kill 0\n")
	if !m.one() || m.one() {
		t.Error("one kill explains not exactly one end")
	}
	if newMemoryKills(t.TempDir()).one() {
		t.Error("there is no cgroup, and it counts kills")
	}
}

// When one trainer has crashed, the others are ended. What they do then is no crash, whatever
// the signal.
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
		t.Errorf("crashed, in the order of their ends: %v", crashed)
	}
}
