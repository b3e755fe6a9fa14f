package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A signal of the terminal can reach us twice: a wrapper gets it too and passes it on. Such an echo
// does not count as a second signal. On a busy machine the two may come far apart, so this test
// sends signals itself, with the clock of synctest.
func TestASecondSignalEndsAtOnceAndAnEchoDoesNot(t *testing.T) {
	for _, c := range []struct {
		patience int32
		after    []time.Duration // for each signal, the time after the one before it
		asked    int             // how often we must be asked to stop
		code     int             // the exit code; 0 means that the process does not exit at once
	}{
		{2, []time.Duration{0}, 1, 0},
		{2, []time.Duration{0, echo - time.Millisecond}, 1, 0},
		{2, []time.Duration{0, echo}, 2, exitForced},
		{2, []time.Duration{0, 0, echo}, 2, exitForced},
		{3, []time.Duration{0, 0, echo, 0}, 2, 0}, // with the patience of `run`, which passes two signals on to its trainers
		{3, []time.Duration{0, echo, echo}, 3, exitForced},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stops{seen: make(chan os.Signal, 4)}
			s.patience.Store(c.patience)
			signals, ended := make(chan os.Signal), make(chan struct{})
			asked, code := 0, 0
			go func() {
				s.watch(signals, func() { asked++ }, func(n int) { code = n })
				close(ended)
			}()
			for _, after := range c.after {
				time.Sleep(after)
				signals <- syscall.SIGTERM
			}
			close(signals)
			<-ended
			if asked != c.asked || code != c.code || len(s.seen) != asked {
				t.Errorf("patience %d, signals after %v: asked to stop %d times, exit code %d, %d signals passed on; want %d times, exit code %d and as many passed on", c.patience, c.after, asked, code, len(s.seen), c.asked, c.code)
			}
		})
	}
}

// In `headrace run ... | tee log`, Ctrl-C ends tee at once, while the trainers still save. They go on
// printing, and nobody reads it. That must not end `headrace run`.
func TestAProgramWhoseOutputNobodyReadsAnyMoreStillStopsInOrder(t *testing.T) {
	const saves = `trap 'echo saving; echo saving; touch saved; exit 0' INT; echo ready; while :; do sleep 0.1; done`
	for _, tc := range []struct {
		name, ready string
		args        []string
	}{
		{"run", "ready", []string{"run", "--", "sh", "-c", saves}},
		{"up", "trainers can come", []string{"up"}},
		{"master", "master is up", []string{"master", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--allow-root", "."}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			p := &proc{t: t, cmd: exec.Command(binary, tc.args...), out: &output{}, err: &output{}, done: make(chan struct{})}
			p.cmd.Dir, p.cmd.Env = w.dir, w.env
			p.cmd.Stdout, p.cmd.Stderr = write, write
			if err := p.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			write.Close()
			go func() { _ = p.cmd.Wait(); close(p.done) }()
			t.Cleanup(p.kill)
			lines := bufio.NewScanner(read)
			for lines.Scan() && !strings.Contains(lines.Text(), tc.ready) {
				_, _ = p.err.Write(append(lines.Bytes(), '\n'))
			}
			read.Close() // nobody reads its output any more
			p.signal(os.Interrupt)
			if r := p.wait(); r.code != 0 {
				t.Errorf("exit code %d (%v), want 0\n%s", r.code, p.cmd.ProcessState, r.err)
			}
			if _, err := os.Stat(w.path("saved")); tc.name == "run" && err != nil {
				t.Errorf("the trainer did not come to the end of its saving: %v", err)
			}
			w.nothingLeft()
		})
	}
}
