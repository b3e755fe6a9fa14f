// Package store keeps a master's keys and values through kill -9 and power
// loss. It is one small interface (Load everything, Commit a batch, Close) with
// pebble behind it. The caller gives keys their meaning. Only the key "f" belongs to the
// store: it holds the format version of the folder.
//
// Promises:
//
//   - Commit returns nil only after the batch was synced; a batch is there in
//     full or not at all.
//
//   - Nothing is tried twice. The first failed write, sync, flush or compaction
//     makes the store fail for good: every later call returns that error, nothing
//     more is written, and the process must end and start again from the folder.
//     The reason: after a failed fsync it is unknown what the disk holds until it
//     is read again.
//
//   - One process at a time: a second Open of a folder says who holds it.
//
// The files:
//
//	store.go     the interface, and the errors
//	open.go      Open: lock, pebble's options, format version
//	door.go      the first failed write ends all writing
//	pebble.go    Load, Commit, Close; how a failure inside pebble comes out
//	memstore/    the same in memory, for tests of others; crashes at any commit
package store
