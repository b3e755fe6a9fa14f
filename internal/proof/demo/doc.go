// Package demo is `headrace demo`: a whole job on one machine, with every
// process that a job on several hosts has, and with real deaths.
//
// It writes a click log, starts a master, two agents and four trainers (two on
// each agent) as processes of their own, kills a trainer, an agent and the
// master with SIGKILL, starts each again, and ends with the report of package
// report. It talks to the job as any tool does: flags, sockets, and the Datasets
// API. cmd/headrace wires Command.
//
// With --source kafka, pulsar or rocketmq the log is produced into a broker of the
// demo's own while it is read, the broker is killed too, and the same trainers run as a
// plain consumer groups beside ours, on the same topic, through the same kills.
//
//	command.go   flags
//	demo.go      the story from first to last line
//	follow.go    progress and kills until all is read; who has ended
//	queue.go     what a kind of broker brings; kafka.go, pulsar.go, rocketmq.go
//	consume.go   RocketMQ's official client as a process; pushconsumer/ runs it
//	topic.go     the broker, its producer and its death
//	group.go     the consumer groups that are compared with
//	live.go      what is other where the input has no end
//	team.go      which processes there are, and how each is started
//	process.go   one process: start, kill, wait; nothing is left behind
//	kills.go     who is killed when, and what is measured
//	ledger.go    questions to the master: apply, leases, counts
//	watch.go     live progress, read from the trainers' journals
//	story.go     narration: lines, and one line that repaints on a terminal
//	produce/     the log into a topic, each record once
//	clicklog/    the log and the truth about it
//	report/      the proof
package demo
