package pulsar

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/sources/brokers"
)

// A large entry comes over a slow link. As long as its bytes come, its Reader waits for it. Otherwise the entry would
// be asked for again and again, and never be whole.
func TestAnEntryIsWaitedForAsLongAsItsBytesCome(t *testing.T) {
	for name, end := range map[string]brokers.At{"a bounded topic": brokers.Latest, "a live one": brokers.Never} {
		large := plain(strings.Repeat("x", 1000))
		large.pieces = make(chan struct{}, realTries+2)
		b := newFakeBroker(t, 5, []*fakeEntry{plain("a"), large, plain("b")})
		t.Cleanup(func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			close(large.pieces)
			large.pieces = nil
		})
		got, err := b.read(t.Context(), b.open(t, end), 5, 0, at(3, 0), 1)
		if err != io.EOF || !slices.Equal(got, []string{"a", string(large.payload), "b"}) {
			t.Errorf("%s: %d messages, then %v", name, len(got), err)
		}
	}
}
