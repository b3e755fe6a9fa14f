// Package remoting speaks RocketMQ's remoting protocol: the requests that the
// official Go client does not offer, or does not offer safely. It asks for routes,
// offsets and messages, and it commits offsets with an answer. It never joins a
// consumer group, starts nothing by itself, and leaves no goroutine after Close.
//
// There is one connection for each address. Requests on it are pipelined: many may
// be under way, and answers come in any order. A context ends its own request only.
//
//	frame.go   frames: commands and their encoding
//	header.go  their headers, in JSON
//	conn.go    one connection: requests out, answers to the caller that waits
//	client.go  connections by address; TLS and signatures
//	errors.go  what an answer's code means, and a server that does not answer
//	sign.go    ACL: signed requests
//	route.go   which brokers have which queues of a topic
//	calls.go   the requests that sources and test brokers send
//	dispatched.go  when a broker's queues show all that it has answered
package remoting
