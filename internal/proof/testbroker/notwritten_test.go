package testbroker

import "testing"

// A broker was killed while it wrote a batch of 128 messages. 79 of them were in its log.
func TestTheRestOfAHalfWrittenBatchIsWritten(t *testing.T) {
	values := make([][]byte, 128)
	for _, c := range []struct {
		at   int64
		left int
		ok   bool
	}{{47487, 0, false}, {47488, 128, true}, {47567, 49, true}, {47616, 0, true}, {47617, 0, false}} {
		left, ok := notWritten(values, 47488, c.at)
		if len(left) != c.left || ok != c.ok {
			t.Errorf("the queue ends at %d: %d values are still to be written, %v; want %d, %v", c.at, len(left), ok, c.left, c.ok)
		}
	}
}
