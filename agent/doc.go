// Package agent is the process that stands between a node's trainers and the
// master: it keeps one session with the master, holds leases in it, reads and
// decodes what they cover, hands batches to trainers over a Unix socket, and
// says what became of every record.
//
// It decides nothing about who gets what: the master does. It never tells a
// trainer's rows to anybody else while the trainer may still run.
//
//	config.go     what an agent is told, checked once
//	agent.go      its life: New, Run, Ready
//	desk.go       where feed, session and clock meet the core (hold), one lock
//	session.go    the gRPC stream: connect, send, receive, back off
//	catalog.go    datasets by name: spec and source
//
//	hold/         keeping leases: the pure core
//	feed/         the socket, reading, batches
//	supervise/    trainers' processes, for `headrace run`
package agent
