// Package rocketmq reads ranges of RocketMQ queues exactly: the messages whose queue offsets
// are in the range, once each and in order, or an error that says which range cannot be
// read. It joins no consumer group and never skips an offset silently.
//
// A partition is one queue of one broker of one cluster. It is listed as one
// sealed segment that ends at the queue's head. A source that is opened again with known
// segments lists one more if the end is further by then. A live partition is one segment
// that grows.
//
// Requests go through internal/remoting. Of the official client we use only the names of
// properties and flags (package primitive), and its producer in tests. Its consumer is not
// used: it joins groups, ignores contexts and leaks goroutines.
//
//	options.go    what to read
//	spec.go       the part of a spec, and what RocketMQ can do
//	source.go     Source: partitions and bounds
//	routes.go     which broker has a queue, also while it is away
//	silence.go    which replicas did not answer
//	segments.go   from where to where a queue is read
//	since.go      which records are older than a time
//	identity.go   PartitionID and locator
//	message.go    stored messages in a buffer
//	inflate.go    compressed bodies
//	pulls.go      requests of one cursor, several under way
//	cursor.go     ranges to batches of records
//	lost.go       why an offset cannot be read
//	same.go       whether the message before the next one is still the one that was read
//	post.go       dead letters to a topic
//	compare.go    which messages the broker has taken back; history.go what is remembered of
//	              each queue for that; trace.go of each message
//	earlier.go    older messages that are remembered after the first look
//	errors.go     errors in a user's words, and which of them are temporary
//	commit.go     our progress as a group's offsets
//	retention.go  when RocketMQ will delete messages that are not read yet
package rocketmq
