package pulsar

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// An agent closes the cursor after an error that may pass, and opens another one. So the
// source counts how often an entry could not be read, and then names it.
func TestAnEntryThatCannotBeReadIsNamedAfterThreeCursors(t *testing.T) {
	for _, one := range []struct {
		name    string
		damages int // the second entry comes damaged so often
		left    bool
		want    string // "": it is read
	}{
		{"it comes damaged twice", 2, false, ""},
		{"it comes damaged again and again", 1000, false, "checksum"},
		{"the broker leaves it out", 0, true, "did not come"},
	} {
		for _, end := range []brokers.At{brokers.Latest, brokers.Never} {
			damages := one.damages
			bad := plain("two")
			bad.left = one.left
			bad.damaged = func() bool { damages--; return damages >= 0 }
			b := newFakeBroker(t, 5, []*fakeEntry{plain("one"), bad, plain("three")}, []*fakeEntry{plain("four")})
			s := b.open(t, end)
			got, err := b.read(t.Context(), s, 5, 0, at(3, 0), 10)
			if one.want == "" {
				if err != io.EOF || !slices.Equal(got, []string{"one", "two", "three"}) || s.tries.count.Load() != 0 {
					t.Errorf("%s: %q, %v, %d entries are counted", one.name, got, err, s.tries.count.Load())
				}
				continue
			}
			m, ok := errors.AsType[*sources.Malformed](err)
			if !ok || m.Position.Offset != at(1, 0) || !strings.Contains(err.Error(), one.want) || !strings.Contains(err.Error(), "t ledger 5 entry 1") || !slices.Equal(got, []string{"one"}) {
				t.Errorf("%s: %q, %v", one.name, got, err)
			}
		}
	}
}

// A broker that is slow, or that takes a topic over, is not one that leaves an entry out. Of an
// entry after which nothing comes, or that its broker does not know, it takes some time until
// it is named.
func TestAnEntryAfterWhichNothingComesIsNamedOnlyAfterSomeTime(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		bad := plain("two")
		bad.left, bad.unknown = true, unknown
		b := newFakeBroker(t, 5, []*fakeEntry{plain("one"), bad})
		s := b.open(t, brokers.Latest)
		if _, err := b.read(t.Context(), s, 5, 0, at(2, 0), opensMost); !isTemporary(err) {
			t.Errorf("unknown %v, after %d cursors: %v", unknown, opensMost, err)
		}
		s.tries.silence = 0
		_, err := b.read(t.Context(), s, 5, 0, at(2, 0), 1)
		if m, ok := errors.AsType[*sources.Malformed](err); !ok || m.Position.Offset != at(1, 0) {
			t.Errorf("unknown %v, after that time: %v", unknown, err)
		}
	}
}

func TestFewEntriesThatCannotBeReadAreCounted(t *testing.T) {
	var a tries
	for i := range int64(10 * triesMost) {
		if n, _ := a.failed(spot{entry: i}); n != 1 {
			t.Fatal(n)
		}
	}
	last := spot{entry: 10*triesMost - 1}
	if n, _ := a.failed(last); n != 2 || len(a.all) > triesMost || int(a.count.Load()) != len(a.all) {
		t.Errorf("the last one failed %d times, %d are kept", n, len(a.all))
	}
	a.passed(last)
	if n, _ := a.failed(last); n != 1 {
		t.Errorf("%d after it was read", n)
	}
}
