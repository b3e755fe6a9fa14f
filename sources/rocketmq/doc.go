// Package rocketmq reads ranges of RocketMQ queues, exactly: the messages whose
// queue offsets are in the range, once each and in order, or an error that says
// which range cannot be read. It joins no consumer group and never skips ahead.
//
// A partition is one queue of one broker of one cluster. It is listed as one
// segment that ends at the queue's head; what comes later is another segment after
// it. A partition without an end has one segment, which grows.
//
// Requests go through internal/remoting. The official client gives names to
// properties and flags here (package primitive), and sends the messages in tests. It
// does not read: its consumer joins groups, ignores contexts and leaks goroutines.
//
//	options.go    what to read
//	spec.go       the part of a spec, and what RocketMQ can do
//	source.go     Source: partitions and bounds
//	routes.go     which broker has a queue, and what is known when it is away
//	segments.go   from where to where a queue is read
//	identity.go   PartitionID and locator
//	message.go    stored messages in a buffer
//	inflate.go    compressed bodies
//	pulls.go      requests of one cursor, several under way
//	cursor.go     ranges to batches of records
//	lost.go       why an offset cannot be read
//	errors.go     what is worth another try, in a user's words
//	commit.go     our progress as a group's offsets
//	retention.go  when RocketMQ will delete what is not read yet
package rocketmq
