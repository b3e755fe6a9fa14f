// Package brokers is what the adapters of Kafka, Pulsar and RocketMQ share: what a topic's
// partitions and places have in common, whatever the broker. Only adapters import it. It
// sends nothing itself.
//
//	end.go    where reading begins and ends, and the fields of a spec that say so
//	list.go   the partitions that a source has listed
//	segments.go  their segments
//	errors.go waiting for another try, and errors of connections
//	spare.go  memory that later answers use again
package brokers
