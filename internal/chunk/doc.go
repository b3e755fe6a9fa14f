// Package chunk is the form of pushed records on storage and on the wire: a chunk holds
// some records of one partition of one transaction. Any language can write one with its
// standard library (docs/LANDING.md, "The form of a chunk").
//
//	chunk.go    Builder, Open and the header
//	record.go   one record
//	key.go      the key of a JSON record
//	locator.go  keys of chunks, and what a commit and a grant say of one
//
// A chunk is 28 bytes of header and a body. Numbers are little-endian:
//
//	 0  "HRC1"
//	 4  u8   codec of the body: 0 none, 1 zstd, 2 zlib
//	 5  3 bytes of 0
//	 8  u32  records
//	12  u32  bytes of the records
//	16  u32  bytes of the body
//	20  u32  CRC-32 (IEEE) of the body as it is stored
//	24  u32  CRC-32 (IEEE) of the 24 bytes before, which names the chunk
//	28  body
package chunk
