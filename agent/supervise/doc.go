// Package supervise starts the trainers of `headrace run` and keeps them: N
// processes with torchrun's environment, output prefixed with the rank, restarts
// within a budget, and an end that leaves no process behind.
//
// It knows nothing of leases. The agent finds out what a dead trainer held.
//
//	supervise.go  Config, Run: the group's life
//	backoff.go    pauses before the next start of what fails again and again
//	worker.go     one process: environment, process group, exit
//	output.go     lines with their rank in front
//	failed.go     how ranks ended, for people and exit codes
package supervise
