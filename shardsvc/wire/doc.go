// Package wire translates between what agents send and what the core of shardsvc
// understands: AgentMessage to shardsvc.Message, shardsvc.Reply to MasterMessage. It
// decides nothing and does no I/O. The master, the simulation and the benchmarks use
// this one translator, so what the simulation plays is what the master decodes.
//
//	message.go  one decoded AgentMessage
//	decode.go   bytes to a Message
//	calls.go    calls about cuts, and those that are refused at once
//	encode.go   replies to bytes
//	order.go    which replies may share a MasterMessage
//	batch.go    gathers the replies of one batch, for the simulation and the benchmarks
package wire
