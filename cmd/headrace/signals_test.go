package main

import (
	"os"
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
