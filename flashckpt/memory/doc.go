// Package memory reads the checkpoints that trainers have left in memory, and writes
// them to storage (docs/FLASH.md). A trainer writes its slots itself; nobody here
// changes one.
//
// The slots of a rank are files in a tmpfs, which outlive trainer and agent. A slot is
// pinned by a shared lock while it is read, and its writer then uses another one.
//
//	slot.go     one slot: its layout, opening, checking
//	list.go     all slots of a node
//	direct.go   large images, past the page cache
//	direct_linux.go direct_other.go  what of it only Linux has
//	persist.go  from a slot to a checkpoint on storage
//	upload.go   the same into a bucket
package memory
