package child

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func run(t *testing.T, name string, script string, env ...string) *Process {
	t.Helper()
	p, err := Start(t.TempDir(), name, env, "/bin/sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(0) })
	return p
}

func TestItsEndAndItsOutputAreKnown(t *testing.T) {
	before := Monotonic()
	p := run(t, "three", `echo "$MINE"; exit 3`, "MINE=yes")
	<-p.Done
	status, _ := p.Status()
	text, err := os.ReadFile(p.Log)
	if err != nil || status != 3 || !p.Ended() || p.At < before || string(text) != "yes\n" {
		t.Errorf("status %d at %d, output %q, %v", status, p.At, text, err)
	}
}

func TestWhoDoesNotListenIsKilled(t *testing.T) {
	deaf := run(t, "deaf", `trap "" TERM; echo ready; while :; do sleep 1; done`)
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Millisecond) {
		if text, _ := os.ReadFile(deaf.Log); len(text) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the process has printed nothing")
		}
	}
	if deaf.Stop(10*time.Millisecond) || deaf.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the process ignores SIGTERM and was stopped: it ended with %v, want SIGKILL", deaf.Err)
	}
	if !run(t, "good", "exec sleep 60").Stop(2 * time.Minute) {
		t.Error("a process that ends on SIGTERM had to be killed")
	}
}

// Other processes may see its end, and go on, before we do.
func TestWhomWeKillHasEndedThen(t *testing.T) {
	for range 20 {
		p := run(t, "killed", "exec sleep 100000")
		p.Signal(syscall.SIGKILL)
		then := Monotonic()
		<-p.Done
		if p.At > then {
			t.Errorf("At is %v after the SIGKILL was sent, want a time before", time.Duration(p.At-then))
		}
	}
}

func TestSettingsOfTheUsersAreNotItsOwn(t *testing.T) {
	t.Setenv("HEADRACE_JOB", "another")
	all := Environment("HEADRACE_RANK=1")
	if slices.ContainsFunc(all, func(v string) bool { return strings.HasPrefix(v, "HEADRACE_JOB=") }) || !slices.Contains(all, "HEADRACE_RANK=1") {
		t.Error(all)
	}
}

// A second SIGTERM ends a headrace process out of order.
func TestNobodyIsAskedTwice(t *testing.T) {
	p := run(t, "slow", `n=0; trap 'n=$((n+1)); echo asked' TERM; echo ready; while [ $n -lt 1 ]; do sleep 0.01; done; trap 'exit 130' TERM; echo again; read x < fifo; exit 0`)
	said := func(word string) {
		for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Millisecond) {
			if text, _ := os.ReadFile(p.Log); strings.Contains(string(text), word) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("it does not say %q", word)
			}
		}
	}
	fifo := filepath.Join(filepath.Dir(p.Log), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	said("ready")
	if !p.Ask() {
		t.Error("the first Ask is refused")
	}
	said("again")
	if p.Ask() {
		t.Error("the second Ask is allowed")
	}
	if err := os.WriteFile(fifo, []byte("go on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !p.Stop(2 * time.Minute) {
		t.Error("the process had to be killed, want an orderly end")
	}
	if status, how := p.Status(); status != 0 {
		t.Error(how)
	}
}
