package files

import (
	"os"
	"strings"
	"testing"
	"time"
)

// The clock is a year ahead when the process begins, and files with times of that clock move the mark.
// Then the clock is set right, so new files are before the mark. The source must not pass over them
// silently.
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
		t.Errorf("with a file before the mark, a look returns %v; want an error that names the clock", err)
	}
}

// An empty file is read once it has a record. So its name is not passed over as late while the file is
// young.
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
	r.drops(r.day(2), "a") // now it has a record
	if got := r.looks(); got != "a" {
		t.Errorf("%q was listed, want a, which has its first record now", got)
	}
}
