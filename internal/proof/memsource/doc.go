// Package memsource is a live source in memory, for tests: a log whose segments grow, roll over, are
// sealed and are trimmed. It shows that such a source (with segments like Pulsar's ledgers or the
// chunks of a landing) needs no code outside its own folder.
//
// As in Pulsar, an offset packs two numbers, and there are holes between the offsets of records.
package memsource
