package main

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// stops says what SIGINT, SIGTERM and SIGHUP do. (SIGHUP means that the terminal has gone;
// under nohup it is ignored.) The first signal asks everything to stop. The signal that
// exhausts the patience ends the process at once.
type stops struct {
	patience atomic.Int32
	seen     chan os.Signal // each signal that counted; run passes them on to trainers
}

// echo is the time within which a second signal counts as the same request. A terminal
// signals a whole group, and wrappers (timeout, make) then pass the signal on once more.
const echo = 250 * time.Millisecond

// watchSignals calls cancel at the first signal. Its goroutine lives as long as
// the process.
func watchSignals(cancel func()) *stops {
	s := &stops{seen: make(chan os.Signal, 4)}
	s.patience.Store(2)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	go s.watch(signals, cancel, os.Exit)
	return s
}

// watch handles signals until their channel is closed.
func (s *stops) watch(signals <-chan os.Signal, cancel func(), exit func(int)) {
	n, last := int32(0), time.Time{}
	for sig := range signals {
		if n > 0 && time.Since(last) < echo {
			continue
		}
		n, last = n+1, time.Now()
		select {
		case s.seen <- sig:
		default:
		}
		cancel()
		if n >= s.patience.Load() {
			exit(exitForced)
		}
	}
}

// outliveReaders makes a process go on when the reader of its output has ended, as `tee` does
// at Ctrl-C. Without this, the next line would end the process at once (SIGPIPE), and its
// trainers with it. A verb that only prints something ends like that, as other tools do. The
// channel has no reader. It only takes the signal away from the runtime; trainers do not
// inherit that.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
