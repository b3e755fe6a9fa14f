// Package link is how Headrace's processes find and trust each other: the
// addresses of masters, the sockets of agents, TLS, and the version of the
// protocol. It holds the one rule about the network: a port that is not on
// loopback needs mutual TLS, so that nobody who can reach a machine can read or
// drop its data by accident.
//
// It never retries and starts no goroutine of its own; gRPC does both.
//
//	address.go   addresses of masters, the file in a state folder that names one
//	listen.go    listening, with errors that name the port and the flag
//	dial.go      client connections
//	tls.go       mutual TLS from three files
//	socket.go    where an agent's Unix socket lies
//	version.go   protocol number and build information
package link
