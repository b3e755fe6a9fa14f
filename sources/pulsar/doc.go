// Package pulsar reads ranges of Pulsar topics exactly: the messages whose positions are in
// the range, once each and in order, or an error that says which range cannot be read.
//
// internal/pulsarwire reads, with one Reader per range. A Reader is kept if the next range
// begins where the last one ended; it never seeks. A broker skips deleted and damaged
// entries without an error, so the id of every entry is compared with the expected one. If
// an entry was skipped, the admin API says what it is. A transaction's marker or an aborted
// message has no record; anything else is an error, or is read again.
//
// A ledger is a segment. An offset in it is an entry and the number of a message in
// the entry (offset.go). The ledgers and where the open one ends come from the admin
// API.
//
// It needs Pulsar 2.11 or newer, and its admin API.
//
//	spec.go     what Pulsar can do, and its part of a spec
//	secure.go   TLS and logins
//	issuer.go   tokens of an OAuth2 issuer
//	options.go  what to read
//	source.go   Source: partitions and bounds
//	segments.go ledgers as segments; from where to where a partition is read
//	since.go    which records are older than a time
//	vanished.go whether an open ledger that is gone held entries
//	offset.go   entry and message as one offset, ledger and piece as one segment
//	identity.go PartitionID and locator
//	client.go   the clients: ours, the official one, and that of the admin API
//	admin.go    the admin API
//	errors.go   errors of both in a user's words, and which of them are temporary
//	reader.go   Readers, kept for the range that goes on at their place
//	ahead.go    how much a Reader fetches ahead of us
//	cursor.go   a range to batches of records
//	gaps.go     why an entry did not come
//	tries.go    how often an entry could not be read
//	commit.go   two subscriptions: our progress, and messages that Pulsar must keep
//	post.go     dead letters to a topic
//	keeps.go    when Pulsar will delete messages that are still needed
//	chunks.go   messages in chunks
package pulsar
