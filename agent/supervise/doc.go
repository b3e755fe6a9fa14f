// Package supervise starts the trainers of `headrace run` and keeps them: N
// processes with torchrun's environment, output prefixed with the rank, restarts
// within a budget, and an end that leaves no process behind.
//
// It knows nothing of leases. The agent finds out what a dead trainer held; it is told
// whether the trainer crashed.
//
//	supervise.go  Config, Run: the group's life
//	backoff.go    pauses before the next start of a process that fails again and again
//	role.go       the tasks of a TensorFlow cluster, their addresses and TF_CONFIG
//	cluster.go    which of these tasks start again, and when they end
//	environment.go  the variables of one process
//	worker.go     one process: environment, process group, exit
//	process_linux.go process_other.go  what only Linux can do for us
//	output.go     lines with their rank in front
//	alike.go      one error of several ranks is printed once
//	crash.go      which ends are crashes; memory.go which processes the kernel killed for want of memory
//	failed.go     how ranks ended, for people and exit codes
package supervise
