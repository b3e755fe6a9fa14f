// Package replica keeps copies of checkpoints in memory on other nodes (docs/FLASH.md). An
// agent copies the newest complete slot of each of its trainers to the next agent, in the
// background; that one keeps it in its own memory, and gives it back to a trainer whose
// node was lost. A trainer never waits for any of this.
//
//	node.go     one agent's part: its life, what it knows of the others
//	ring.go     which agent gets the copies: pure
//	meet.go     finding the others by the master
//	send.go     copying slots
//	pace.go     no faster than the bandwidth that was given
//	serve.go    what other agents ask
//	find.go     what trainers ask when they restore
package replica
