package files

// blocks are the sizes that reading and listing go by, in bytes but for records.
type blocks struct {
	// read is what one read asks for. Larger ones fall out of the processor's
	// cache before the decoder comes to them.
	read int64
	// records bounds a batch: of very short records a block holds so many that
	// their positions would be far larger than they are.
	records int
	// overrun is read after a range's end at first, because its last record ends there.
	overrun int64
	// segment: one of quoted CSV ends at the first record border after this.
	segment int64
	// every: its locator has a record's start about this often, which is what a
	// reader that begins in its middle scans at most, and then some of one record.
	every int64
	// scan is what one read asks for when quoted CSV is indexed.
	scan int64
	// far: the end of a line over max_record is looked for so far from its beginning.
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
