package pulsar

// This file bounds how much a Reader fetches ahead of us: no more entries than the range has,
// and about aheadBytes. A broker may send readAtOnce entries more.
const (
	aheadBytes   = 4 << 20
	entriesFirst = 16 // while the sizes of a partition's entries are not known
	entriesLeast = 2
	entriesMost  = 1000
	readAtOnce   = 100 // a broker reads so many entries at once, or 5 MiB (dispatcherMaxReadBatchSize, ...SizeBytes)
	knownFrom    = 8   // from so many entries on, the average is used
	knownMost    = 512 // after so many entries, all counts are halved
)

// sizes adds up the recent entries of a partition.
type sizes struct{ entries, messages, bytes float64 }

func (z *sizes) add(bytes int64, messages int) {
	z.entries, z.messages, z.bytes = z.entries+1, z.messages+float64(messages), z.bytes+float64(bytes)
	if z.entries > knownMost {
		z.entries, z.messages, z.bytes = z.entries/2, z.messages/2, z.bytes/2
	}
}

// ahead returns how many entries may come ahead of us, for a range that has so many left.
// messages is how many messages an entry has on average, or 0. If it is not 0, the Reader
// gives permits for messages: the broker is faster, because it reads on without waiting for
// permits, but it may send up to readAtOnce entries more. With 0 it sends no more than asked.
func (z *sizes) ahead(left int64) (entries int64, messages float64) {
	if z.entries < knownFrom {
		return min(entriesFirst, left), 0
	}
	entries = min(max(int64(aheadBytes/(z.bytes/z.entries+1)), entriesLeast), entriesMost, left)
	if left >= entries+readAtOnce {
		messages = max(1, z.messages/z.entries)
	}
	return entries, messages
}
