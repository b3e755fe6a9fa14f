// Command fill starts a broker, writes the benchmark's topics into it, prints its
// address and ends when it is interrupted.
//
//	main.go      flags, and the records
//	trickle.go   or records at a rate, until it is interrupted
//	pulsar.go    batches as the official client's producer makes them
//	rocketmq.go  batches of 1,000
package main
