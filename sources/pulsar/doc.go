// Package pulsar reads ranges of Pulsar topics, exactly: the messages whose positions
// are in the range, once each and in order, or an error that says which range cannot
// be had.
//
// The official client reads: one Reader per range, kept only while the next range
// begins where the last one ended, and never told to seek. A Reader leaves out what
// was deleted and what is damaged without an error, so every message's id is compared
// with the one that is next. Where they differ, the admin API says what the entries
// between them are: a transaction's marker, an aborted message or a piece of a larger
// message holds nothing; anything else is an error, or is read again.
//
// A ledger is a segment. An offset in it is an entry and the number of a message in
// the entry (offset.go). The ledgers and where the open one ends come from the admin
// API.
//
// Needs Pulsar 2.11 or newer, and its admin API.
//
//	spec.go     what Pulsar can do, and its part of a spec; secure.go secrets
//	options.go  what to read
//	source.go   Source: partitions and bounds
//	segments.go ledgers as segments; from where to where a partition is read
//	vanished.go what it means that an open ledger is gone
//	offset.go   entry and message as one offset, ledger and piece as one segment
//	identity.go PartitionID and locator
//	client.go   the official client; admin.go the admin API; errors.go both in a user's words
//	reader.go   official Readers, kept for who goes on where they are
//	ahead.go    how much a Reader may have ahead of us
//	cursor.go   a range to batches of records
//	gaps.go     why an entry did not come
//	commit.go   two subscriptions: our progress, and what must not be deleted
//	keeps.go    how far what is needed is from its deletion
//	chunks.go   a message in chunks whose first ones lie before the range
package pulsar
