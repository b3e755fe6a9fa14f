// Package demo is `headrace demo`: a whole job on one machine. It has every process that a job on several
// hosts has, and kills them for real.
//
// It writes a click log, and starts a master, two agents and four trainers (two on each agent) as
// processes. It kills a trainer, an agent and the master with SIGKILL, and starts each again. It ends
// with the report of package report. It uses the job as any tool does: by flags, sockets and the
// Datasets API. cmd/headrace adds Command.
//
// With --source kafka, pulsar or rocketmq it starts a broker, produces the log into a topic while it is
// read, and kills the broker too. Plain consumer groups read the same topic at the same time, with the
// same trainers and the same kills.
//
//	command.go   flags
//	demo.go      the story from the first line to the last
//	follow.go    progress and kills until all is read
//	queue.go     what a kind of broker has to offer; kafka.go, pulsar.go, rocketmq.go
//	consume.go   RocketMQ's official client as a process; pushconsumer/ runs it
//	topic.go     the broker, its producer and its death
//	group.go     the consumer groups that we compare with
//	live.go      the differences for an input without an end
//	team.go      the processes, and how each is started
//	process.go   one process: start, kill, wait; it leaves nothing behind
//	kills.go     which process is killed when, and what is measured
//	ledger.go    questions to the master: apply, leases, counts
//	watch.go     live progress, read from the trainers' journals
//	story.go     the output: lines, and one line that is repainted on a terminal
//	produce/     writes the log into a topic, each record once
//	clicklog/    the log and the truth about it
//	report/      the report from the journals
package demo
