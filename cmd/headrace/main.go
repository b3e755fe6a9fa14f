// Command headrace is the one binary: master, agent, both in one, and the tools
// to look at them. It is the only place that wires adapters (sources/files) into
// master and agent.
//
//	main.go      starts; root.go the tree of verbs; signals.go SIGINT and SIGTERM
//	errors.go    errors to exit codes and hints
//	output.go    table, json, yaml; views.go what is shown
//	adapters.go  specs to sources
//	master.go agent.go up.go run.go    processes
//	datasets.go  apply, list, describe, pause, resume, delete
//	status.go job.go top.go            what is going on
//	ckpt.go ckpt_*.go  checkpoints on storage, with the ledger's view
//	audit.go rewind.go which records are in a model; back to one
//	peek.go check.go rows.go line.go   reading rows without leases
//	metrics.go   an agent's own numbers
//	version.go gpu_*.go
package main

import (
	"context"
	"os"
)

// version is set by the linker.
var version = "0.1.0-dev"

func main() { os.Exit(run()) }

func run() int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a := &app{out: os.Stdout, err: os.Stderr, in: os.Stdin, stops: watchSignals(cancel)}
	err := a.root().ExecuteContext(ctx)
	return a.report(err, ctx.Err() != nil)
}
