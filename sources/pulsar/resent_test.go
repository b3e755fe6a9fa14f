package pulsar

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/sources/brokers"
)

// A producer whose connection ends may send chunks again that the broker has already stored. The message
// still comes once, where its chunks are complete for the first time, wherever ranges begin. It comes
// again only if it was sent again as a whole, from its first chunk on.
func TestChunksThatWereSentAgainAreTakenOnce(t *testing.T) {
	part := []string{"aaaa", "bbbb", "cc"}
	whole := strings.Join(part, "")
	for order, want := range map[string]string{
		"0 1 2":             "m",
		"0 1 1 2":           "m",
		"0 0 1 2":           "m",
		"0 1 0 1 2":         "m",
		"0 1 2 2":           "m",
		"0 1 2 1 2":         "m",
		"0 1 2 2 2":         "m",
		"0 1 x 1 y 2 x 2 y": "xymxy",
		"0 1 2 0 1 2":       "mm",
		"0 1 2 2 0 1 2 2":   "mm",
		"0 1 0 1":           "", // the last chunk is missing
	} {
		var all []*fakeEntry
		for _, c := range strings.Fields(order) {
			if c == "x" || c == "y" {
				all = append(all, plain(c))
				continue
			}
			id := int(c[0] - '0')
			all = append(all, chunkOf("producer-7", id, len(part), len(whole), part[id]))
		}
		b := newFakeBroker(t, 5, all)
		s := b.open(t, brokers.Latest)
		end := at(int64(len(all)), 0)
		for _, step := range []int64{end, at(1, 0), at(2, 0)} {
			var got []string
			for from := int64(0); from < end; from += step {
				some, err := b.read(t.Context(), s, 5, from, min(from+step, end), 3)
				if err != io.EOF {
					t.Fatalf("%s, in steps of %d: %v", order, entryOf(step), err)
				}
				got = append(got, some...)
			}
			var expected []string
			for _, c := range want {
				if c == 'm' {
					expected = append(expected, whole)
				} else {
					expected = append(expected, string(c))
				}
			}
			if !slices.Equal(got, expected) {
				t.Errorf("%s, in steps of %d: %q, want %q", order, entryOf(step), got, expected)
			}
		}
	}
}

// A message is read whole even if many others begin between its chunks.
func TestAMessageIsPutTogetherAlsoIfManyOthersHaveBegun(t *testing.T) {
	all := []*fakeEntry{chunkOf("ours", 0, 2, 8, "1234")}
	for i := range 2 * partsMost {
		all = append(all, chunkOf(fmt.Sprint("other", i), 0, 2, 8, "0000"))
	}
	all = append(all, chunkOf("ours", 1, 2, 8, "5678"))
	b := newFakeBroker(t, 5, all)
	s := b.open(t, brokers.Latest)
	end := at(int64(len(all)), 0)
	for _, from := range []int64{0, at(3, 0), end - at(1, 0)} {
		if got, err := b.read(t.Context(), s, 5, from, end, 3); err != io.EOF || !slices.Equal(got, []string{"12345678"}) {
			t.Errorf("from entry %d on: %q, %v", entryOf(from), got, err)
		}
	}
}
