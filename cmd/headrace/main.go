// Command headrace is the one binary: master, agent, both in one, and the tools
// to look at them. It is the only place that wires adapters (sources/files) into
// master and agent.
//
//	main.go      signals and exit codes; root.go the tree of verbs
//	errors.go    errors to exit codes and hints
//	output.go    table, json, yaml; views.go what is shown
//	adapters.go  specs to sources
//	master.go agent.go up.go run.go    processes
//	datasets.go  apply, list, describe, pause, resume, delete
//	status.go job.go top.go            what is going on
//	peek.go check.go rows.go           reading rows without leases
//	version.go complete.go gpu_*.go
package main

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// version is set by the linker.
var version = "0.1.0-dev"

func main() { os.Exit(run()) }

func run() int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	patience := &atomic.Int32{}
	patience.Store(2)

	// Lives as long as the process. The first signal asks everything to stop;
	// the one that exhausts patience ends the process where it stands.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for n := int32(1); ; n++ {
			<-signals
			cancel()
			if n >= patience.Load() {
				os.Exit(exitForced)
			}
		}
	}()

	a := &app{out: os.Stdout, err: os.Stderr, in: os.Stdin, patience: patience}
	err := a.root().ExecuteContext(ctx)
	return a.report(err, ctx.Err() != nil)
}
