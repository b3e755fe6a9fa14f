package main

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A terminal's signal is passed on by a wrapper, and a busy machine delivers both far from each
// other. So this is played with a clock of the test's own.
func TestASecondSignalEndsAtOnceAndAnEchoDoesNot(t *testing.T) {
	for _, c := range []struct {
		patience int32
		after    []time.Duration // each signal, after the one before
		asked    int             // to stop
		code     int             // 0: it goes on
	}{
		{2, []time.Duration{0}, 1, 0},
		{2, []time.Duration{0, echo - time.Millisecond}, 1, 0},
		{2, []time.Duration{0, echo}, 2, exitForced},
		{2, []time.Duration{0, 0, echo}, 2, exitForced},
		{3, []time.Duration{0, 0, echo, 0}, 2, 0}, // run passes two on to its trainers
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
				t.Errorf("patience %d, signals after %v: asked to stop %d times, exit %d, %d passed on; want %d times and exit %d", c.patience, c.after, asked, code, len(s.seen), c.asked, c.code)
			}
		})
	}
}
