package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A second `headrace run` of a job on the same machine is refused while the first one runs. It used
// to join the job as rank 0, too: the trainers of the two runs were fenced by turns, and both
// runs ended with an error.
func TestAJobHasTrainersOfOneRun(t *testing.T) {
	for _, tc := range []struct {
		name string
		up   bool // whether master and agent run in a process of their own
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
					t.Errorf("the error of the second run does not say %q", part)
				}
			}
			if second.code != exitFailed || second.out != "" {
				t.Errorf("the second run: exit code %d, want %d and no trainer's output:\n%s%s", second.code, exitFailed, second.out, second.err)
			}
			select {
			case <-first.done:
				t.Fatalf("the first run ended when the second one started:\n%s%s", first.out, first.err)
			default:
			}

			w.env = append(w.env, modeVariable+"=")
			if !tc.up { // what the hint proposes: another job, which has its own master and reads all records for itself
				if rows, sum := read(t, w.ok("run", "--job", "other", "-f", "clicks.yaml", "--", program)); rows != n || sum != n*(n-1)/2 {
					t.Errorf("the run of another job: rows %d sum %d, want %d and %d", rows, sum, n, n*(n-1)/2)
				}
			}
			first.signal(syscall.SIGKILL) // what a killed run leaves does not have to be removed by hand
			first.wait()
			if rows, sum := read(t, w.ok("run", "-f", "clicks.yaml", "--", program)); rows != n || sum != n*(n-1)/2 {
				t.Errorf("the run after the first one was killed: rows %d sum %d, want %d and %d", rows, sum, n, n*(n-1)/2)
			}
			if _, err := os.Lstat(w.socket() + ".run-0"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file that marks the run is still there after its end (%v)", err)
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
		t.Errorf("rows %d sum %d, want %d and %d\n%+v\n%+v", rows, sum, n, n*(n-1)/2, ra, rb)
	}
}
