package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The second `headrace run` of a job used to join the job of the first as rank 0. The
// trainers of both were fenced in turns, and both ended with an error.
func TestAJobHasTrainersOfOneRun(t *testing.T) {
	for _, tc := range []struct {
		name string
		up   bool // master and agent in a process of their own
	}{{"the first run is the master too", false}, {"beside a master", true}} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			const n = 1000
			w.clicks(n)
			if tc.up {
				w.up("-f", "clicks.yaml")
			}
			program := w.self(modeHang)
			first := w.start("run", "-f", "clicks.yaml", "--", program)
			first.until("a batch in its hands", func() bool { return strings.Contains(first.out.String(), "hanging with") })

			second := w.run("run", "-f", "clicks.yaml", "--", program)
			for _, part := range []string{"job default has trainers already on this machine", "process " + strconv.Itoa(first.cmd.Process.Pid), "--job NAME", "--nproc-per-node"} {
				if !strings.Contains(second.err, part) {
					t.Errorf("not said: %q", part)
				}
			}
			if second.code != exitFailed || second.out != "" {
				t.Errorf("exit %d, no trainer may have run:\n%s%s", second.code, second.out, second.err)
			}
			select {
			case <-first.done:
				t.Fatalf("the first run ended:\n%s%s", first.out, first.err)
			default:
			}

			w.env = append(w.env, modeVariable+"=")
			if !tc.up { // the hint's way: another job, with its own master and its own reading
				if rows, sum := read(t, w.ok("run", "--job", "other", "-f", "clicks.yaml", "--", program)); rows != n || sum != n*(n-1)/2 {
					t.Errorf("another job: rows %d sum %d", rows, sum)
				}
			}
			first.signal(syscall.SIGKILL) // an owner that is killed leaves nothing that must be removed by hand
			first.wait()
			if rows, sum := read(t, w.ok("run", "-f", "clicks.yaml", "--", program)); rows != n || sum != n*(n-1)/2 {
				t.Errorf("after the first one's end: rows %d sum %d", rows, sum)
			}
			if _, err := os.Lstat(w.socket() + ".run-0"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the owner's file was left behind (%v)", err)
			}
		})
	}
}

func TestRunsOfSeveralNodesAreOneGroup(t *testing.T) {
	w := newWorld(t)
	const n = 1000
	w.clicks(n)
	w.up("-f", "clicks.yaml")
	program := w.self("")
	a := w.start("run", "--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", "29500", "--", program)
	b := w.start("run", "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port", "29500", "--", program)
	ra, rb := a.wait(), b.wait()
	if rows, sum := read(t, ra.out+rb.out); ra.code != 0 || rb.code != 0 || rows != n || sum != n*(n-1)/2 {
		t.Errorf("rows %d sum %d\n%+v\n%+v", rows, sum, ra, rb)
	}
}
