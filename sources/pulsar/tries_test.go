package pulsar

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

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
	stuck := func(value string) *fakeEntry {
		return &fakeEntry{metadata: metadataOf(), payload: []byte(value), stuck: true}
	}
	for _, c := range []struct {
		name    string
		unknown bool // to the admin API
		behind  []*fakeEntry
		named   bool
	}{
		{"it is the last one", false, nil, true},
		{"it is the last one, and the broker does not know it", true, nil, false},
		{"what lies behind it comes to another Reader", false, []*fakeEntry{plain("three")}, true},
		{"what lies behind it comes to another Reader, and the broker does not know it", true, []*fakeEntry{plain("three")}, true},
		{"nothing comes at all: the broker is slow", false, []*fakeEntry{stuck("three")}, false},
	} {
		bad := stuck("two")
		bad.unknown = c.unknown
		b := newFakeBroker(t, 5, append([]*fakeEntry{plain("one"), bad}, c.behind...))
		s := b.open(t, brokers.Latest)
		s.tries.behind = time.Hour
		if !c.named {
			s.tries.behind = time.Millisecond // nothing comes in any time
		}
		if _, err := b.read(t.Context(), s, 5, 0, at(2, 0), opensMost); !isTemporary(err) {
			t.Errorf("%s, after %d cursors: %v", c.name, opensMost, err)
		}
		s.tries.silence = 0
		_, err := b.read(t.Context(), s, 5, 0, at(2, 0), 1)
		if m, ok := errors.AsType[*sources.Malformed](err); ok != c.named || ok && m.Position.Offset != at(1, 0) || !ok && !isTemporary(err) {
			t.Errorf("%s, after that time: %v", c.name, err)
		}
	}
}

// A broker that is slow now and was slow an hour ago leaves no entry out.
func TestTriesThatDoNotFollowEachOtherCloselyAreCountedAnew(t *testing.T) {
	var a tries
	now := time.Now()
	for i, c := range []struct {
		ago   time.Duration // the failure before
		times int
	}{{0, 1}, {0, 2}, {time.Hour, 1}, {0, 2}} {
		if c.ago > 0 {
			a.all[0].since, a.all[0].last = a.all[0].since.Add(-c.ago), a.all[0].last.Add(-c.ago)
		}
		if times, lasts := a.failed(spot{entry: 7}, now); times != c.times || lasts > 30*time.Minute {
			t.Errorf("failure %d: %d in a row, for %v", i+1, times, lasts)
		}
	}
	// A try may take long itself.
	a.all[0].since, a.all[0].last = now.Add(-time.Hour), now.Add(-time.Hour)
	if times, lasts := a.failed(spot{entry: 7}, now.Add(-time.Hour+time.Second)); times != 3 || lasts < time.Hour {
		t.Errorf("after a long try: %d in a row, for %v", times, lasts)
	}
}

func TestFewEntriesThatCannotBeReadAreCounted(t *testing.T) {
	var a tries
	for i := range int64(10 * triesMost) {
		if n, _ := a.failed(spot{entry: i}, time.Now()); n != 1 {
			t.Fatal(n)
		}
	}
	last := spot{entry: 10*triesMost - 1}
	if n, _ := a.failed(last, time.Now()); n != 2 || len(a.all) > triesMost || int(a.count.Load()) != len(a.all) {
		t.Errorf("the last one failed %d times, %d are kept", n, len(a.all))
	}
	a.passed(last)
	if n, _ := a.failed(last, time.Now()); n != 1 {
		t.Errorf("%d after it was read", n)
	}
}
