package pulsar

// This file bounds how much a Reader fetches ahead of us.
//
// A Reader gives the broker permits, one for each message that it has room for. The
// broker counts entries against them: with 1000 permits it sends up to a hundred entries
// at once, each with all its messages, and again when half of the permits are back. So
// the library's default holds 25,000 messages ahead where an entry has 256, and a
// gigabyte where a message has a megabyte. Permits are therefore given for entries: no
// more than the range has, and no more than aheadBytes hold.
const (
	aheadBytes   = 4 << 20
	messageBytes = 512 // bytes that the library keeps for a message beside its payload
	permitsFirst = 16  // while the sizes of a partition's entries are not known
	permitsLeast = 2
	permitsBatch = 16 // the least if entries have several messages: the library sends a command for each half of them
	permitsMost  = 1000
	knownFrom    = 64   // from so many messages on, the average is used
	knownMost    = 8192 // after so many messages, all counts are halved
)

// sizes adds up the recent entries of a partition.
type sizes struct{ entries, messages, bytes float64 }

func (z *sizes) add(payload int, wholeEntry bool) {
	if z.messages++; z.messages > knownMost {
		z.entries, z.messages, z.bytes = z.entries/2, z.messages/2, z.bytes/2
	}
	z.bytes += float64(payload)
	if wholeEntry {
		z.entries++
	}
}

func (z *sizes) known() bool { return z.messages >= knownFrom && z.entries > 0 }

// permits returns the number of permits for entries of these sizes.
func (z *sizes) permits() int64 {
	if !z.known() {
		return permitsFirst
	}
	least := int64(permitsLeast)
	if z.messages > 2*z.entries {
		least = permitsBatch
	}
	entry := (z.bytes + messageBytes*z.messages) / z.entries
	return min(max(int64(aheadBytes/entry), least), permitsMost)
}

// permitsFor returns the number of permits for a range of so many entries.
func (z *sizes) permitsFor(entries int64) int64 {
	return max(permitsLeast, min(z.permits(), entries))
}

// fits says whether a Reader with these permits may read a range of so many entries. It must
// not fetch more than four times too much ahead, nor have less than a quarter of the
// permits that the range needs.
func (z *sizes) fits(permits, entries int64) bool {
	return permits <= 4*z.permits() && 4*permits >= z.permitsFor(entries)
}
