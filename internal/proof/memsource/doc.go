// Package memsource is a live source in memory, for tests: a log whose segments roll
// over, grow, are sealed and are trimmed. It shows that a source of that kind (Pulsar's
// ledgers, chunks of a landing) needs nothing outside its own folder.
//
// Offsets are packed as Pulsar's are: two numbers in one, with holes between records.
package memsource
