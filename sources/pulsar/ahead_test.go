package pulsar

import "testing"

func TestAsManyEntriesComeAheadAsTheRangeAndItsMemoryHold(t *testing.T) {
	for _, c := range []struct {
		what          string
		entries, size int
		perEntry      int
		left, want    int64
		messages      float64
	}{
		{"nothing is known", 0, 0, 1, 500, entriesFirst, 0},
		{"nothing is known, and the range is small", 0, 0, 1, 3, 3, 0},
		{"small messages, one in an entry", 1000, 100, 1, 5000, entriesMost, 1},
		{"large messages", 100, 1 << 20, 1, 5000, 3, 1},
		{"messages of 5 MiB", 100, 5 << 20, 1, 5000, entriesLeast, 1},
		{"batches of 256", 100, 128 << 10, 256, 5000, 31, 256},
		{"batches of 256, near the end of the range", 100, 128 << 10, 256, 130, 31, 0},
		{"batches of 10", 100, 5000, 10, 5000, 838, 10},
		{"the range has one entry", 100, 5000, 10, 1, 1, 0},
		{"the range has fewer entries than a broker reads at once", 100, 5000, 10, readAtOnce, readAtOnce, 0},
	} {
		var z sizes
		for range c.entries {
			z.add(int64(c.size), c.perEntry)
		}
		if got, messages := z.ahead(c.left); got != c.want || messages != c.messages {
			t.Errorf("%s: %d entries and %v messages, want %d and %v", c.what, got, messages, c.want, c.messages)
		}
	}
	var z sizes
	for range 1000 {
		z.add(1<<20, 1)
	}
	for range 10 * knownMost {
		z.add(100, 1)
	}
	if got, _ := z.ahead(5000); got < entriesMost/10 {
		t.Errorf("%d entries, long after the messages have shrunk", got)
	}
}
