// Package link is how Headrace's processes find and trust each other: the
// addresses of masters, the sockets of agents, TLS, and the version of the
// protocol. It holds the rules about the network. A port that is not on loopback needs
// mutual TLS. On loopback both sides prove that they know the job's token, because other
// users live on the same machine. Package access says which caller may do what.
//
// It never retries and starts no goroutine of its own; gRPC does both.
//
//	address.go   addresses of masters, the file in a state folder that names one
//	listen.go    listening, with errors that name the port and the flag
//	dial.go      client connections
//	grpc.go      what all servers and connections have in common: sizes, probes
//	peer.go      connections from one agent to another
//	door.go      a listener that lets in callers that have proven who they are
//	scale.go     how large the messages are that callers send, before they are read
//	pages.go     those of them that speak HTTP/1.1
//	proof.go     the proof that both sides know the same token
//	key.go       a caller's token; TLS and the proof as gRPC credentials
//	tls.go       mutual TLS from three files
//	socket.go    where an agent's Unix socket lies
//	version.go   protocol number and build information
package link
