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

// After a temporary error, an agent opens another cursor. So the source counts over cursors how often an
// entry could not be read, and then names it in an error.
func TestAnEntryThatCannotBeReadIsNamedAfterThreeCursors(t *testing.T) {
	for _, one := range []struct {
		name    string
		damages int // how often the second entry comes damaged
		left    bool
		want    string // the error; "": the entry is read
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

// A broker that is slow, or that is taking a topic over, must not count as leaving an entry out. So an entry
// after which nothing comes, or that its broker does not know, is named in an error only after some time.
func TestAnEntryAfterWhichNothingComesIsNamedOnlyAfterSomeTime(t *testing.T) {
	stuck := func(value string) *fakeEntry {
		return &fakeEntry{metadata: metadataOf(), payload: []byte(value), stuck: true}
	}
	for _, c := range []struct {
		name    string
		unknown bool // the admin API does not know the entry
		behind  []*fakeEntry
		named   bool
	}{
		{"it is the last one", false, nil, true},
		{"it is the last one, and the broker does not know it", true, nil, false},
		{"the entry after it comes to another Reader", false, []*fakeEntry{plain("three")}, true},
		{"the entry after it comes to another Reader, and the broker does not know it", true, []*fakeEntry{plain("three")}, true},
		{"nothing comes at all: the broker is slow", false, []*fakeEntry{stuck("three")}, false},
	} {
		bad := stuck("two")
		bad.unknown = c.unknown
		b := newFakeBroker(t, 5, append([]*fakeEntry{plain("one"), bad}, c.behind...))
		s := b.open(t, brokers.Latest)
		s.tries.behind = time.Hour
		if !c.named {
			s.tries.behind = time.Millisecond // a short wait is enough, because nothing will come
		}
		if _, err := b.read(t.Context(), s, 5, 0, at(2, 0), opensMost); !isTemporary(err) {
			t.Errorf("%s, after %d cursors: %v, want a temporary error", c.name, opensMost, err)
		}
		s.tries.silence = 0
		_, err := b.read(t.Context(), s, 5, 0, at(2, 0), 1)
		if m, ok := errors.AsType[*sources.Malformed](err); ok != c.named || ok && m.Position.Offset != at(1, 0) || !ok && !isTemporary(err) {
			t.Errorf("%s, after a long time: %v; want an error that names the entry: %v", c.name, err, c.named)
		}
	}
}

// If a broker is slow now and was slow an hour ago, that does not count as two tries in a row.
func TestTriesThatDoNotFollowEachOtherCloselyAreCountedAnew(t *testing.T) {
	var a tries
	now := time.Now()
	for i, c := range []struct {
		ago   time.Duration // how long ago the failure before was
		times int
	}{{0, 1}, {0, 2}, {time.Hour, 1}, {0, 2}} {
		if c.ago > 0 {
			a.all[0].since, a.all[0].last = a.all[0].since.Add(-c.ago), a.all[0].last.Add(-c.ago)
		}
		if times, lasts := a.failed(spot{entry: 7}, now); times != c.times || lasts > 30*time.Minute {
			t.Errorf("failure %d: %d in a row, for %v", i+1, times, lasts)
		}
	}
	// A single try may take long, too.
	a.all[0].since, a.all[0].last = now.Add(-time.Hour), now.Add(-time.Hour)
	if times, lasts := a.failed(spot{entry: 7}, now.Add(-time.Hour+time.Second)); times != 3 || lasts < time.Hour {
		t.Errorf("after a long try: %d in a row, for %v", times, lasts)
	}
}

func TestFewEntriesThatCannotBeReadAreCounted(t *testing.T) {
	var a tries
	for i := range int64(10 * triesMost) {
		if n, _ := a.failed(spot{entry: i}, time.Now()); n != 1 {
			t.Fatalf("got %v, want %v", n, 1)
		}
	}
	last := spot{entry: 10*triesMost - 1}
	if n, _ := a.failed(last, time.Now()); n != 2 || len(a.all) > triesMost || int(a.count.Load()) != len(a.all) {
		t.Errorf("the last entry has failed %d times, want 2; %d entries are kept", n, len(a.all))
	}
	a.passed(last)
	if n, _ := a.failed(last, time.Now()); n != 1 {
		t.Errorf("an entry that was read meanwhile has failed %d times, want 1", n)
	}
}
