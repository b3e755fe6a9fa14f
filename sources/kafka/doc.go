// Package kafka reads ranges of Kafka partitions, exactly: the committed records
// whose offsets are in the range, once each and in order, or an error that says
// which range cannot be had. It never joins a group and never jumps.
//
// segmentio/kafka-go keeps the connections: TLS, SASL, leaders, retries of its
// own metadata. The requests that matter for exactness are ours, through its
// hook for raw exchanges: topics by their ids (a topic deleted and made again
// answers nothing), the list of aborted transactions, positions of batches and
// not only of records. Bytes are walked in place and never trusted.
//
// A partition is listed as one segment that ends where its last stable offset
// was; what is produced later is another segment behind it. Offsets without a
// record (control records, aborted and compacted ones) ride with the record
// before them.
//
// Needs Kafka 3.1 or newer, or what speaks Fetch v13, Metadata v12, ListOffsets v7
// and OffsetForLeaderEpoch v4.
//
//	spec.go      Kind: what Kafka can do, and its part of a spec
//	options.go   what to read; a spec as Options
//	secure.go    TLS and SASL
//	source.go    Source: partitions and bounds
//	segments.go  from where to where a partition is read
//	whole.go     topics as one sequence, for bit_exact
//	identity.go  PartitionID and locator
//	client.go    requests through kafka-go's transport
//	conn.go      connections that wake their reader for large pieces
//	errors.go    what is worth another try, in a user's words
//	wire.go      Kafka's encoding
//	metadata.go  Metadata; offsets.go ListOffsets; fetch.go Fetch
//	sums.go      checksums of batches while their answer comes
//	batch.go     record batches and records in a buffer
//	plain.go     the same for records without keys and headers
//	codec.go     compressed batches
//	aborted.go   which records a transaction took back
//	cursor.go    ranges to batches of records, one fetch ahead
//	tails.go     who waits at heads asks each leader together
//	epochs.go    whether a new leader's log has what was read from the one before
//	lost.go      why an offset cannot be read
//	retention.go when Kafka will delete what is not read yet; logdirs.go sizes
//	clock.go     the time by which retention is foretold
//	post.go      dead letters to a topic
//	commit.go    our progress as a group's offsets
package kafka
