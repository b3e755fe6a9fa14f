package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
)

// If a power failure undoes a deletion, the file is deleted again.
func TestADeletionIsMadeAgain(t *testing.T) {
	places(t, func(t *testing.T, place writable) {
		r := retains(t, place, Spec{})
		r.drops(r.day(0), "a")
		r.expect("a")
		r.deletes(everything)
		r.later(30 * day)
		path, before := filepath.Join(r.dir, "a"), filepath.Join(t.TempDir(), "a")
		if place == nil {
			if err := os.Link(path, before); err != nil {
				t.Fatal(err)
			}
		}
		r.deletes(everything)
		r.wants("")
		if place == nil {
			if err := os.Link(before, path); err != nil {
				t.Fatal(err)
			}
		} else {
			r.drops(r.day(0), "a")
		}
		r.start()
		r.expect("")
		if gone := r.deletes(everything); fmt.Sprint(gone) != "[0]" {
			t.Errorf("segments %v are reported as deleted, want %v", gone, "[0]")
		}
		r.wants("")
	})
}

// Another process knows since when files are not needed. If that note is lost, they stay longer.
func TestTimeGoesOnInAnotherProcess(t *testing.T) {
	for _, lost := range []bool{false, true} {
		r := retains(t, nil, Spec{})
		r.drops(r.day(0), "a")
		r.expect("a")
		r.deletes(everything)
		r.later(6 * day)
		if lost {
			if err := os.Remove(r.src.deleting.passed.file); err != nil {
				t.Fatal(err)
			}
		}
		r.start()
		r.expect("")
		r.deletes(everything)
		r.later(day)
		r.deletes(everything)
		if want := map[bool]string{true: "a"}[lost]; r.lies() != want {
			t.Errorf("lost %t: there are %q, want %q", lost, r.lies(), want)
		}
	}
}

// If a dataset is deleted and applied again, the times noted for the first one do not count.
func TestADatasetThatIsAppliedAgainBeginsAnew(t *testing.T) {
	r := retains(t, nil, Spec{})
	r.drops(r.day(0), "a")
	r.expect("a")
	r.deletes(everything)
	r.later(30 * day)
	r.ledger = nil
	r.start()
	r.expect("a")
	r.deletes(everything)
	r.wants("a")
}

func TestPassedSaysSinceWhen(t *testing.T) {
	seg := func(id int64, locator string) sources.Segment {
		return sources.Segment{ID: id, Sealed: true, Locator: []byte(locator)}
	}
	segs := []sources.Segment{seg(0, ""), seg(2, "a"), seg(3, "b"), seg(4, "c"), seg(5, "d")}
	const retain = 6400
	file := filepath.Join(t.TempDir(), "deep", "passed")
	p := passed{file: file}
	note := func(now int64, end int) {
		t.Helper()
		if err := p.note(now, retain, segs, end); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(segment, want int64) {
		t.Helper()
		if got := p.since(segment); got != want {
			t.Errorf("segment %d: since %d, want %d (%+v)", segment, got, want, p.at)
		}
	}
	note(1000, 0)
	expect(2, everything)
	note(1000, 1) // segment 0 is folded, so there is no time for it
	expect(0, everything)
	note(1000, 3)
	expect(3, 1000)
	expect(4, everything)
	note(1050, 4) // less than a 64th of retain later: not noted
	expect(4, everything)
	note(1100, 4)
	expect(4, 1100)
	p = passed{file: file}
	note(1200, 5)
	expect(2, 1000)
	expect(4, 1100)
	expect(5, 1200)
	note(1300, 3) // the mark went back
	expect(4, everything)
	expect(3, 1000)
	note(900, 5) // the clock was set back
	expect(3, 900)
	note(1000, 5)
	expect(5, 1000)
	for i, other := range []string{"x", "y", "z"} { // the segments are those of another listing
		segs[i+2].Locator = []byte(other)
	}
	note(2000, 4)
	expect(2, 2000)
	expect(4, 2000)
	if err := os.WriteFile(file, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	p = passed{file: file}
	note(3000, 5)
	expect(2, 3000)
	// The samples take bounded memory, however long it goes on.
	for i := range int64(1000) {
		segs = append(segs, seg(10+i, fmt.Sprint(i)))
		note(3000+200*i, len(segs))
	}
	if len(p.at) > samplesMost+2 {
		t.Errorf("%d samples are kept", len(p.at))
	}
	expect(2, p.at[0].Time)
	if p.at[0].Time > 3000+200*999-retain {
		t.Errorf("the oldest sample is too young: %+v", p.at[0])
	}
}

// A file that cannot be deleted is named. The others are deleted.
func TestAFileThatCannotBeDeletedIsNamed(t *testing.T) {
	m := newMemory()
	m.refuses = func(key string) error {
		if key == "b" {
			return errors.New("access is denied")
		}
		return nil
	}
	r := retains(t, m, Spec{})
	r.drops(r.day(0), "a", "b", "c")
	r.expect("a b c")
	r.deletes(everything)
	r.later(30 * day)
	for range 3 {
		if gone := r.deletes(everything); fmt.Sprint(gone) != "[0 2]" {
			t.Errorf("segments %v are reported as deleted, want %v", gone, "[0 2]")
		}
	}
	r.wants("b")
	if n := strings.Count(r.log.String(), "access is denied"); n != 1 || !strings.Contains(r.log.String(), "file=b") {
		t.Errorf("%d lines in the log, want 1: %s", n, r.log.String())
	}
	m.refuses = nil
	r.src.deleting.failed["b"] = time.Now().Add(-failedAgain)
	r.deletes(everything)
	r.wants("")

	r.drops(r.day(1), "d", "e")
	r.expect("d e")
	r.deletes(everything)
	r.later(30 * day)
	m.refuses = func(string) error { return storage.ErrAway }
	found, err := r.src.Delete(t.Context(), r.src.partition, r.ledger, sources.Position{Segment: everything}, anyway)
	if !errors.Is(err, storage.ErrAway) || fmt.Sprint(found.Gone) != "[0 1 2]" {
		t.Errorf("while the service is away, segments %v are reported as deleted: %v", found.Gone, err)
	}
	m.refuses = nil
	r.deletes(everything)
	r.wants("")
}

// A file does not become older when the wall clock jumps, because its age is measured with the monotonic
// clock.
func TestAClockThatIsSetForwardDeletesNoFileEarly(t *testing.T) {
	r := retains(t, nil, Spec{})
	// As if the wall clock had been 30 days behind at the start, and the file had come five days before by
	// that clock.
	r.src.list.growing.wall = r.src.list.growing.wall.Add(-30 * day)
	r.drops(time.Now().Add(-35*day), "a")
	r.expect("a")
	r.deletes(everything)
	r.later(30 * day)
	r.deletes(everything)
	r.wants("a")
	r.drops(r.day(0), "b")
	r.expect("b")
	for range 2 {
		r.deletes(everything)
		r.later(30 * day)
	}
	r.wants("a")
}

// Files that cannot be deleted do not keep the master busy. After the first time, a call tries only some
// of them again, and no further call follows at once. Other files are deleted.
func TestACallTriesFewFilesAgainThatCannotBeDeleted(t *testing.T) {
	m := newMemory()
	tried := 0
	m.refuses = func(key string) error {
		if key >= "n" {
			return nil
		}
		tried++
		return errors.New("access is denied")
	}
	r := retains(t, m, Spec{})
	for i := range retriesMost + 10 {
		r.drops(r.day(0), fmt.Sprintf("%04d", i))
	}
	r.looks()
	ages := func() {
		for name := range r.src.deleting.failed {
			r.src.deleting.failed[name] = time.Now().Add(-failedAgain)
		}
	}
	r.deletes(everything)
	r.later(30 * day)
	for i, want := range []int{retriesMost + 10, 0, retriesMost, 10, 0} {
		if i == 2 {
			r.drops(r.day(0), "new")
			r.expect("new")
			r.deletes(everything)
			r.later(30 * day)
			ages()
		}
		tried = 0
		found, err := r.src.Delete(t.Context(), r.src.partition, r.ledger, sources.Position{Segment: everything}, anyway)
		if err != nil || tried != want || found.More || (len(found.Gone) == 1) != (i >= 2) {
			t.Errorf("call %d: %d were tried, more %t, %v gone: %v; want %d", i, tried, found.More, found.Gone, err, want)
		}
	}
	if n := strings.Count(r.log.String(), "cannot be deleted"); n != toldMost {
		t.Errorf("%d lines in the log", n)
	}
}

func TestACallOfDeleteTakesABoundedTime(t *testing.T) {
	r := retains(t, nil, Spec{})
	r.drops(r.day(0), "a")
	r.expect("a")
	r.deletes(everything)
	r.later(30 * day)
	r.src.deleting.within = -1
	found, err := r.src.Delete(t.Context(), r.src.partition, r.ledger, sources.Position{Segment: everything}, anyway)
	if err != nil || !found.More || len(found.Gone) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
	r.wants("a")
}

// If somebody rewinds while files are about to be deleted, the files that are needed then stay.
func TestARewindDuringADeletionKeepsWhatItNeeds(t *testing.T) {
	places(t, func(t *testing.T, place writable) {
		r := retains(t, place, Spec{})
		r.drops(r.day(0), "a", "b", "c")
		r.expect("a b c")
		r.deletes(2)
		r.later(30 * day)
		away := errors.New("the master is stopped")
		var asked []int64
		delete := func(mark int64, err error) (sources.Deletions, error) {
			return r.src.Delete(t.Context(), r.src.partition, r.ledger, sources.Position{Segment: 2}, func(ids []int64) (sources.Position, error) {
				asked = ids
				r.wants("a b c") // the master is asked before a file is deleted
				return sources.Position{Segment: mark}, err
			})
		}
		if found, err := delete(2, away); !errors.Is(err, away) || len(found.Gone) > 0 || fmt.Sprint(asked) != "[0 1]" {
			t.Errorf("with the master stopped: segments %v were due, %v are reported as deleted: %v", asked, found.Gone, err)
		}
		r.wants("a b c")
		if found, err := delete(1, nil); err != nil || len(found.Gone) > 0 || fmt.Sprint(asked) != "[0 1]" {
			t.Errorf("after a rewind: segments %v were due, %v are reported as deleted: %v", asked, found.Gone, err)
		}
		r.wants("a b c") // the mark went back, so the time begins again for all of them
		r.deletes(1)
		r.later(30 * day)
		if gone := r.deletes(1); fmt.Sprint(gone) != "[0]" {
			t.Errorf("segments %v are reported as deleted, want %v", gone, "[0]")
		}
		r.wants("b c")
	})
}
