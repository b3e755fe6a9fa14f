package files

// blocks has the sizes by which files are read and listed. All are in bytes, except records.
type blocks struct {
	// read is how much one read asks for. Larger blocks fall out of the processor's cache
	// before they are decoded.
	read int64
	// records is how many records a batch has at most. A block holds very many short records,
	// and their positions would take far more memory than the records.
	records int
	// overrun is how much more than the range the first read asks for, because the last record
	// ends after the range.
	overrun int64
	// segment: if listing cuts a file into segments, each ends at the first record border after
	// so many bytes.
	segment int64
	// every: the locator of such a segment notes a record's start about once in so many bytes.
	// A reader that begins in the middle scans no more than that and a part of one record.
	every int64
	// scan is how much one read asks for while listing cuts a file.
	scan int64
	// far: the end of a line that is longer than max_record is looked for only so far from its
	// beginning.
	far int64
}

var defaultBlocks = blocks{
	read:    1 << 20,
	records: 16 << 10,
	overrun: 16 << 10,
	segment: 63 << 20,
	every:   1 << 20,
	scan:    1 << 20,
	far:     1 << 30,
}
