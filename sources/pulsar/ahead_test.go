package pulsar

import "testing"

func TestAReaderGetsPermitsForTheEntriesThatItsMemoryHolds(t *testing.T) {
	for _, c := range []struct {
		what             string
		messages, size   int
		perEntry         int
		left, want, kept int64 // entries of the range; permits; those of a Reader that may go on
	}{
		{"nothing is known", 0, 0, 1, 500, permitsFirst, permitsFirst},
		{"nothing is known, and the range is small", 0, 0, 1, 3, 3, permitsFirst},
		{"small messages, one in an entry", 1000, 100, 1, 5000, permitsMost, permitsMost / 4},
		{"large messages", 100, 1 << 20, 1, 5000, 3, 12},
		{"messages of 5 MiB", 100, 5 << 20, 1, 5000, permitsLeast, permitsLeast},
		{"batches of 256", 2560, 500, 256, 5000, permitsBatch, permitsBatch},
		{"batches of 10", 1000, 500, 10, 5000, 414, 104},
		{"the range has one entry", 1000, 500, 10, 1, permitsLeast, permitsLeast},
	} {
		var z sizes
		for i := range c.messages {
			z.add(c.size, (i+1)%c.perEntry == 0)
		}
		if got := z.permitsFor(c.left); got != c.want {
			t.Errorf("%s: %d permits, want %d", c.what, got, c.want)
		}
		if !z.fits(c.kept, c.left) {
			t.Errorf("%s: a Reader with %d permits is not used", c.what, c.kept)
		}
	}
	var z sizes
	for range 1000 {
		z.add(1<<20, true)
	}
	if z.fits(permitsFirst, 1000) {
		t.Error("a Reader that was opened before the messages grew to 1 MiB is used")
	}
	for range 4 * knownMost {
		z.add(100, true)
	}
	if z.fits(permitsFirst, 1000) || !z.fits(permitsFirst, 10) {
		t.Error("a Reader that was opened before the messages shrank: it suits 10 entries, and not 1000")
	}
}
