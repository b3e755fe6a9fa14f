// Package parquet reads Parquet files into columns. It reads the wanted columns only, and any
// run of rows. It trusts no byte of a file: it checks each count before it takes memory for
// it, and returns rows or an error. A batch is bounded in bytes, so it may have fewer rows
// than were asked for.
//
// It knows nothing of datasets or of frames: sources/files asks it for rows and hands them on
// as sources.Column. Dictionaries are handed on as they are, so a string is converted or
// hashed once, not once for each row.
//
//	thrift.go    the compact protocol, as much as metadata needs
//	metadata.go  footer, row groups, page headers
//	schema.go    the tree of fields, and a path's leaf in it
//	leaves.go    the fields that a column can be made of
//	file.go      Open: the rows and row groups that a footer names
//	page.go      a page's bytes: CRC, decompression
//	memory.go    buffers and dictionaries that one reader leaves to the next
//	levels.go    definition and repetition levels, and dictionary indices, in runs
//	packed.go    bit-packed numbers of a run
//	values.go    PLAIN and BYTE_STREAM_SPLIT; delta.go the delta encodings
//	kinds.go     physical and logical types to kinds of values
//	chunk.go     one column of a row group, page by page
//	rows.go      rows of a column, up to the bounds of a batch
//	pageindex.go where a column's pages begin, if the file has an index of them
//	reader.go    rows of a row group
//
// The format: github.com/apache/parquet-format.
package parquet
