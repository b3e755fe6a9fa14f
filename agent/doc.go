// Package agent is the process between a node's trainers and the master. It keeps
// one session with the master and holds leases in it. It reads and decodes what
// they cover, hands batches to trainers over a Unix socket, and reports what
// became of every record.
//
// The master decides which worker gets what; the agent decides nothing about that. It
// never gives a trainer's rows to another one while the trainer may still run.
//
//	config.go     what an agent is told, checked once
//	agent.go      its life: New, Run, Ready
//	desk.go       where feed, session and clock meet the core (hold), one lock
//	session.go    the gRPC stream: connect, send, receive, back off
//	catalog.go    datasets by name: spec and source
//
//	hold/         keeping leases: the pure core
//	feed/         the socket, reading, batches
//	replica/      copies of checkpoints in memory on other nodes
//	stepfile/     what an ended trainer had stepped: files in shared memory
//	supervise/    trainers' processes, for `headrace run`
package agent
