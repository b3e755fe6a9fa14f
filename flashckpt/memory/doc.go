// Package memory reads the checkpoints that trainers have left in memory, and writes
// them to storage, or to another node's memory (docs/FLASH.md). A trainer writes its slots
// itself; nobody here changes one. Replicas of other nodes' slots are written here.
//
// The slots of a rank are files in a tmpfs, which outlive trainer and agent. A slot is
// pinned by a shared lock while it is read, and its writer then uses another one.
//
//	slot.go     one slot: its layout, opening, checking
//	head.go     what a slot says of its sizes; the layout of an image
//	list.go     all slots of a node
//	seen.go     the same, for somebody who looks again and again
//	replica.go  replicas of other nodes' slots: which one is written
//	receive.go  a slot from another node's bytes
//	afford.go   how much memory is free
//	direct.go   large images, past the page cache
//	direct_linux.go direct_other.go  the system calls of direct.go that only Linux has
//	persist.go  from a slot to a checkpoint on storage
//	split.go    the same, with parts of the state in files of their own
//	shards.go   the same for a sharded checkpoint: every rank has a part of it
//	upload.go   the same into a bucket
package memory
