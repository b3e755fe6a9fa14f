// Package pulsarwire reads entries of topics with Pulsar's binary protocol. The official Go
// client hands over message by message, with several allocations and goroutine switches for
// each, and it asks the broker for more after each few messages. This package hands over
// whole entries, as the broker stores them, and asks for more by bytes and entries. It reads
// only: it has no producers, no acknowledgements and no durable subscriptions.
//
// There is one connection for each broker. A Reader is one exclusive, non-durable
// subscription that begins at an entry. It ends when its connection ends or when the broker
// moves the topic; its user then opens another one. Entries come in order, each once. Some
// never come: the broker leaves out markers and messages of aborted transactions.
//
// The messages of the protocol and their fields: PulsarApi.proto of Apache Pulsar. The
// frames: https://pulsar.apache.org/docs/developing-binary-protocol/
//
//	command.go  commands: which fields of them we write and read
//	frame.go    frames on a connection, and the memory for entries
//	entry.go    an entry: checksum, metadata, compression, and its messages
//	client.go   connections by broker; which broker has a topic
//	conn.go     one connection: login, requests, entries to their Readers, keep-alive
//	reader.go   one Reader: entries that have come, and permits for more
//	errors.go   what a broker refuses
package pulsarwire
