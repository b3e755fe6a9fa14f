package main

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// stops is what SIGINT, SIGTERM and SIGHUP (the terminal has gone; nohup is
// honoured) do: the first asks everything to stop, the
// one that exhausts the patience ends the process where it stands.
type stops struct {
	patience atomic.Int32
	seen     chan os.Signal // each one that counted, for run, which passes them on
}

// echo is how soon a repeated signal is the same request: a terminal signals a
// whole group, and wrappers (timeout, make) pass it on a second time.
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
	go func() {
		var last time.Time
		for n := int32(0); ; {
			sig := <-signals
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
				os.Exit(exitForced)
			}
		}
	}()
	return s
}
