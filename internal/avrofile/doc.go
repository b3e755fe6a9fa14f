// Package avrofile reads Avro object container files: the header, blocks of records by their
// place in the file, and where each record of a block ends. It decodes no value.
//
// Its input is untrusted: what is read is bounded by the file, a block by MaxBlock, and
// damage is an error that names the byte.
//
//	file.go   the header, and blocks
//	codec.go  null, deflate, snappy and zstandard
//	skip.go   where a record ends, by the schema of its writer
package avrofile
