// Package frame is the trainer socket's wire: the 16-byte message header, the
// JSON payloads of its control messages, and the binary frame that carries
// batches as columns (docs/PROTOCOL.md, "The trainer socket" and "Frames").
//
// It opens no socket and keeps no state of a connection: agent/feed does. What
// comes from the other side is untrusted; every length in it is checked before
// it is used, and the readers are fuzzed.
//
//	header.go    message types, header, reading and writing a message
//	messages.go  payloads of the control messages
//	calls.go     payloads of calls about checkpoints
//	schema.go    columns as OPENED describes them
//	layout.go    sizes and offsets inside a frame, spans
//	write.go     Builder: rows gathered as columns in one 64-byte aligned buffer
//	finish.go    a Builder's rows as a payload
//	times.go     event times of what a batch has of each span
//	pool.go      where builders come from and return to
//	regions.go   messages about frames that lie in shared memory
//	read.go      a received frame, checked, as views
package frame
