// Package parquet reads Parquet files into columns. It reads the wanted columns only, any
// run of rows, and every byte of a file is untrusted: each count is checked before memory
// is taken for it, and a file gives rows or an error. A batch has a bound in bytes, and may so have fewer
// rows than were asked for.
//
// It knows nothing of datasets or of frames: sources/files asks it for rows and gives them
// on as sources.Column. Dictionaries are handed on as they are, so that a string is
// converted or hashed once and not once a row.
//
//	thrift.go    the compact protocol, as much as metadata needs
//	metadata.go  footer, row groups, page headers
//	schema.go    the tree of fields, and a path's leaf in it
//	leaves.go    the fields that a column can be made of
//	file.go      Open, and what a file says of itself
//	page.go      a page's bytes: CRC, decompression
//	memory.go    buffers and dictionaries, which one reader leaves to the next
//	levels.go    definition and repetition levels, and dictionary indices, in runs
//	packed.go    bit-packed numbers of a run
//	values.go    PLAIN and BYTE_STREAM_SPLIT; delta.go the delta encodings
//	kinds.go     physical and logical types to kinds of values
//	chunk.go     one column of a row group, page by page
//	rows.go      rows of a column, up to the bounds of a batch
//	pageindex.go where a column's pages begin, if the file says it
//	reader.go    rows of a row group
//
// The format: github.com/apache/parquet-format.
package parquet
