// Package kafka reads ranges of Kafka partitions exactly: the committed records whose
// offsets are in the range, once each and in order, or an error that says which range
// cannot be read. It never joins a group and never skips an offset silently.
//
// segmentio/kafka-go keeps the connections: TLS, SASL, leaders, retries of its own
// metadata. We encode the requests that exactness depends on ourselves and send them
// through its hook for raw exchanges. So we can name topics by their ids: a topic that was
// deleted and made again has another id. Answers list the aborted transactions, and we know
// the positions of batches, not only those of records. Records are parsed where they lie in
// the answer, and every length is checked.
//
// A partition with an end is listed as one sealed segment, up to its end at that time. A source
// that is opened again with known segments lists one more if the end is further by then. A live
// partition is one segment that grows. An offset without a record (control, aborted or
// compacted) is acked with the record before it.
//
// It needs Kafka 3.1 or newer, or a broker that speaks Fetch v13, Metadata v12, ListOffsets v7
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
//	errors.go    errors in a user's words, and which of them are temporary
//	wire.go      Kafka's encoding
//	metadata.go  the request Metadata
//	offsets.go   the request ListOffsets
//	since.go     which records are older than a time
//	fetch.go     the request Fetch
//	sums.go      checksums of batches while their answer arrives
//	batch.go     record batches and records in a buffer
//	plain.go     the same for records without keys and headers
//	codec.go     compressed batches
//	aborted.go   records of aborted transactions
//	cursor.go    ranges to batches of records, one fetch ahead
//	tails.go     cursors that wait at heads share requests, by leader
//	epochs.go    whether a new leader's log has what was read from the one before
//	lost.go      why an offset cannot be read
//	retention.go when Kafka will delete records that are not read yet
//	logdirs.go   sizes of partitions
//	post.go      dead letters to a topic
//	commit.go    our progress as a group's offsets
package kafka
