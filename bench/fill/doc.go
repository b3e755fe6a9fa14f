// Command fill starts a broker and writes the benchmark's topics into it. It prints the broker's address,
// and ends when it is interrupted.
//
//	main.go      flags, and the records
//	trickle.go   writes records at a rate until it is interrupted
//	pulsar.go    batches as the official client's producer makes them
//	rocketmq.go  batches of 1,000 records
package main
