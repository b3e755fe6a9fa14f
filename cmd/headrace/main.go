// Command headrace is the one binary: master, agent, both in one process, and the tools
// to look at them. It is the only place that wires adapters (sources/...) into master and
// agent. It holds flags, wiring and exit codes. What a verb decides lies in packages that
// a test can call: internal/view, internal/ckpt, internal/sample, internal/pushing,
// internal/deadletter, internal/project.
//
//	main.go      starts; root.go the tree of verbs; arguments.go wrong arguments of verbs;
//	             signals.go SIGINT and SIGTERM
//	errors.go    errors to exit codes and hints
//	output.go    table, json, yaml
//	kinds.go     the sources that this program reads; adapters.go opens them
//	push.go      pushes lines; upload.go puts them into a bucket; chunks.go where an agent finds pushed records; pushed.go where peek and check do
//	specs.go     the files of -f
//	init.go      a spec and a program for data that the user names
//	master.go agent.go up.go run.go    processes
//	node_linux.go node_other.go        the agent; only Linux has what it needs
//	flash.go                           checkpoints that trainers of run left in memory, to storage
//	run_roles.go the tasks of a TensorFlow cluster, from a job's file
//	start.go     how up and run apply -f before trainers can join
//	folder.go    a job belongs to the folder in which it was begun
//	owner.go     one run at a time starts a job's trainers
//	datasets.go  apply, list, describe, pause, resume, delete
//	deadletter.go                      bad records that were left out
//	peers.go      the port for agents of other nodes, and copies of checkpoints in memory
//	peek.go check.go                   rows without leases
//	status.go top.go                   the state of the job
//	ckpt.go ckpt_pin.go ckpt_rm.go ckpt_verify.go  checkpoints on storage
//	audit.go rewind.go                 which records are in a model; back to one
//	reclaim.go   taking back the rows of an idle process
//	ask.go       questions: confirm on a terminal, completion of names
//	metrics.go   an agent's own numbers
//	version.go gpu_none.go gpu_nvml.go
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
