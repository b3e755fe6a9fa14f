// Package hold keeps an agent's leases. It is a pure core: Step(now, event,
// effects) changes its state and says what to do; it has no I/O, no clock and no
// goroutine. The shell (package agent) calls it under one lock.
//
// It answers five questions:
//
//   - May these batches leave for the trainer? (Deliver) Only while the session
//     can be trusted and the leases still cover them. Once batches have left, they
//     are delivered, and no steal takes them.
//   - What may be acked? (Stepped) The oldest delivered batches of a stream, as
//     prefixes of the leases that they span. An ack stays in the books until it
//     is answered, and is said again in every new session.
//   - What must the master know? Held on every new session, with the part that each
//     lease still claims. Leave and ReadFailure until the master is known to have
//     processed them. A lost Release is not repeated, because Held says the same.
//   - What does a trainer ask about cuts? Each call is passed on after the acks
//     and steps that were said before it, and again until it is answered.
//   - How much do we want? As many leases as a worker uses up in the prefetch time.
//
// Trust: the session is good until SEND time of the newest message that the
// master has echoed, plus its TTL, minus a margin. The master counts from
// receipt, so we always give up first. When trust ends, nothing is delivered until
// the session is good again. In a `shared` job, workers that have rows in hand are
// also ended. Trainers ask how long trust lasts (Ping), so that they know it when
// nobody answers any more.
//
//	core.go      the state, Step, and the messages that leave after it
//	events.go    what may happen
//	effects.go   what the shell has to do
//	session.go   hello, echo, trust
//	workers.go   join, resume, fence, leave
//	crash.go     the records that a crashed process had in hand
//	leases.go    grant, steal, revoke, release, failure
//	steps.go     delivered, stepped, acked, durable
//	tally.go     the records in an ack; when acks fold
//	calls.go     questions about cuts, until they are answered
//	pause.go     pauses of yields while a shared model is saved
//	rounds.go    rounds of a synchronous group
//	wants.go     rates and lease requests
//	heads.go     where input that grows ends by now
//	fifo.go      a queue
//	check.go     invariants, for tests
package hold
