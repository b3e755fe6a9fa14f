// Package files reads datasets that lie in files: lists of files, globs and folders under roots
// that an administrator allowed. It finds them, numbers them, gives each a locator that opens
// it on any node, and cuts byte ranges into records. It never decodes a record and never writes
// to these files. It deletes only those that files.retain names.
//
// A file is one segment whose offsets are its bytes. A record belongs to the range that holds
// its first byte, so any two integers are a range. To open a range in the middle of a file, a
// reader looks at the byte before it. Quoted CSV (a line end may stand inside a value),
// TFRecord and delimited Protobuf need to be read from the file's beginning. So listing cuts
// such a file into segments of about 64 MiB at record borders, and notes in each locator a
// record's start about every MiB.
//
// A compressed file has a segment for about each 64 MiB of its unpacked content. Its offsets
// are bytes of that content.
//
// A file that has changed since it was planned is refused: every locator carries size,
// modification time, inode and a fingerprint of the file, and every Open compares them.
//
// The master lists (Partitions, Bounds, Segments), agents read (Open); both call
// Open of this package with the dataset's spec.
//
//	spec.go      Kind: what files can do, and their part of a spec; line.go the line of an offset
//	options.go   Options, and how a spec says where records end
//	source.go    Source: the sources.Source of one dataset
//	place.go     what an open file is, wherever it lies
//	bucket.go    objects on S3: listing, opening, what has changed; ahead.go reading ahead
//	roots.go     every file is opened through an allowed root
//	expand.go    paths to a sorted list of files; glob.go the patterns
//	growing.go   folders that grow: each file once; look.go which files are complete;
//	             replaced.go what comes again under a name that was read; remember.go which
//	             names are forgotten; touched_linux.go and touched_other.go when a file came
//	retain.go    files that were read are deleted; passed.go since when they are not needed;
//	             overlap.go which datasets may read the same
//	list.go      files to segments, one after the other
//	index.go     segments of quoted CSV, TFRecord and delimited Protobuf
//	sniff.go     where the data of a file begins, and what is no text
//	locator.go   what travels in a grant
//	identity.go  is this the file that was planned; verify.go remembers the answer
//	codec.go     compressed files: which, and what is wrong with them; section.go where
//	             a reading of one is; gzip.go, zstd.go and bzip2.go their formats
//	packed.go    listing them; unpack.go reading them as if they were plain
//	points.go    where reading may begin in them; trim.go how much disk that may take
//	table.go     Parquet: row groups to segments, ranges to rows of columns
//	container.go Avro files: blocks to segments, ranges to records
//	blocks.go    how much is read at once
//	over.go      records that are longer than max_record
//	cursor.go    ranges to batches of records; frame.go where a record ends;
//	             settle.go where a batch ends; tfrecord.go TFRecord;
//	             delimited.go Protobuf messages with their lengths
//	errors.go    which errors are worth another try
package files
