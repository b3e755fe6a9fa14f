// Package brokers has the code that the adapters of Kafka, Pulsar and RocketMQ share. It knows
// no broker and sends nothing itself. Only adapters import it.
//
//	end.go    where reading begins and ends, and the fields of a spec that say so
//	list.go   the partitions that a source has listed
//	segments.go  their segments
//	errors.go waiting for another try, and errors of connections
//	spare.go  memory that later answers use again
package brokers
