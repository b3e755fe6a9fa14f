package files

import (
	"os"
	"strings"
	"testing"
	"time"
)

// The clock is a year ahead when the process begins, and files of that clock move the mark.
// Then it is set right: files that come now lie before the mark. They may not be passed over
// without a word.
func TestAClockThatWasAheadIsTold(t *testing.T) {
	r := remembers(t, nil, Spec{Remember: week})
	r.touched = true
	r.src.came = cameLast
	ahead := func() time.Time { return time.Now().Add(365 * 24 * time.Hour) }
	r.src.list.growing.wall = ahead()
	for _, name := range []string{"a", "b"} {
		r.drops(ahead(), name)
		if err := r.src.look(t.Context(), ahead()); err != nil {
			t.Fatal(err)
		}
		for r.src.list.next < len(r.src.list.files) {
			if err := r.src.listMore(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.ledger = append(r.ledger, r.src.segments...)
	r.start()
	r.drops(time.Now(), "c")
	if err := r.src.look(t.Context(), time.Now()); err == nil || !strings.Contains(err.Error(), "clock was more than files.remember") {
		t.Errorf("a file that comes before the mark: %v", err)
	}
}

// An empty file is looked into again when it has changed, so its name is not passed over
// while it is young.
func TestAnEmptyFileIsNotPassedOver(t *testing.T) {
	r := remembers(t, nil, Spec{Remember: week, Late: lateSkip})
	r.drops(r.day(0), "b")
	if err := os.WriteFile(r.dir+"/a", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(r.dir+"/a", r.day(0), r.day(0)); err != nil {
		t.Fatal(err)
	}
	r.looks()
	r.drops(r.day(1), "c")
	r.looks()
	r.drops(r.day(2), "d")
	r.looks()
	r.drops(r.day(2), "a") // it has a record now
	if got := r.looks(); got != "a" {
		t.Errorf("%q was listed, a has got its first record", got)
	}
}
