// Package rounds decides when a synchronous group trains its next round, so that
// either all ranks get a round or none does. docs/ROUNDS.md has the reasons.
//
// It is a pure value: no I/O, no clock, no goroutine, and it imports nothing. The
// master's core keeps one Series for each run of rounds that a group reads, reports to
// it what the ranks say, and tells the ranks what it decides.
//
// The decision is a minimum. A rank says "ready through r" when its own process has
// received its rows of all rounds up to r. This stays true as long as the process lives:
// no steal, no end of an agent and no new master takes these rows away. Round r goes when
// all ranks are ready through r. A new master that asks the ranks again therefore never
// decides less than the one before it, and nothing has to be stored.
//
// Agents use Rows of this package, for the rows of the rounds of a stream.
package rounds
