package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/sources"
)

// If somebody touches a file, or puts the same object again, its time begins again.
func TestAFileThatIsTouchedIsNotDeleted(t *testing.T) {
	places(t, func(t *testing.T, place writable) {
		r := retains(t, place, Spec{})
		r.drops(r.day(0), "a")
		r.expect("a")
		r.deletes(everything)
		r.later(30 * day)
		if place == nil { // as after a change of its permissions
			r.src.came = func(int64, int64) int64 { return time.Now().UnixNano() }
		} else {
			r.drops(time.Now(), "a")
		}
		r.deletes(everything)
		r.wants("a")
	})
}

func TestAFileThatWasReplacedIsNotDeleted(t *testing.T) {
	places(t, func(t *testing.T, place writable) {
		r := retains(t, place, Spec{})
		r.drops(r.day(0), "a", "b")
		r.expect("a b")
		r.deletes(everything)
		r.later(30 * day)
		if place == nil {
			if err := os.WriteFile(filepath.Join(r.dir, "a"), []byte("another\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			old := r.day(0)
			if err := os.Chtimes(filepath.Join(r.dir, "a"), old, old); err != nil {
				t.Fatal(err)
			}
		} else {
			place.put(t, "a", []byte("another\n"))
		}
		if gone := r.deletes(everything); fmt.Sprint(gone) != "[1]" {
			t.Errorf("segments %v are reported as deleted, want %v", gone, "[1]")
		}
		r.wants("a")
		r.deletes(everything)
		if n := strings.Count(r.log.String(), "it is not deleted"); n != 1 {
			t.Errorf("%d lines in the log, want 1: %s", n, r.log.String())
		}
	})
}

func TestAnObjectThatIsReplacedInTheMomentOfItsDeletionStays(t *testing.T) {
	m := newMemory()
	r := retains(t, m, Spec{})
	r.drops(r.day(0), "a")
	r.expect("a")
	r.deletes(everything)
	r.later(30 * day)
	m.meanwhile = func(key string) {
		o := m.all[key]
		o.Tag = "another"
		m.all[key] = o
	}
	r.deletes(everything)
	r.wants("a")
}

// A link is not deleted, because its file is somewhere else.
func TestALinkIsNotDeleted(t *testing.T) {
	r := retains(t, nil, Spec{Paths: []string{"in"}})
	r.drops(r.day(0), "out/data")
	if err := os.Mkdir(filepath.Join(r.dir, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../out/data", filepath.Join(r.dir, "in", "link")); err != nil {
		t.Fatal(err)
	}
	r.expect("in/link")
	r.deletes(everything)
	r.later(30 * day)
	r.deletes(everything)
	r.wants("in/link out/data")
	if !strings.Contains(r.log.String(), "links are not deleted") {
		t.Error(r.log.String())
	}
}

// A name is forgotten only after its file is deleted. Otherwise the file would never be deleted.
func TestANameIsNotForgottenBeforeItsFileIsDeleted(t *testing.T) {
	for _, late := range []string{lateRead, lateSkip} {
		t.Run(late, func(t *testing.T) {
			places(t, func(t *testing.T, place writable) {
				r := retains(t, place, Spec{Remember: week, Late: late})
				r.drops(r.day(0), "a", "b")
				r.expect("a b")
				r.drops(r.day(20), "c")
				r.expect("c")
				r.drops(r.day(21), "d")
				r.expect("d")
				r.deletes(2)
				r.folds(everything)
				if m, l := r.remembered(); m != 4 || l != 4 {
					t.Fatalf("%d names and %d segments are remembered, want all", m, l)
				}
				r.later(7 * day)
				r.deletes(2)
				r.wants("c d")
				r.start() // the process is killed before a name is forgotten
				r.expect("")
				r.folds(everything)
				if m, l := r.remembered(); m != 2 || l != 2 {
					t.Fatalf("%d names and %d segments are remembered, want c and d", m, l)
				}
				r.start() // and another one after that
				r.expect("")
				r.deletes(everything)
				r.later(30 * day)
				r.deletes(everything)
				r.wants("")
				r.drops(r.day(22), "e")
				r.expect("e")
			})
		})
	}
}

// A new file with the name of a deleted one is not read.
func TestAFileThatComesUnderTheNameOfADeletedOneIsNotRead(t *testing.T) {
	places(t, func(t *testing.T, place writable) {
		r := retains(t, place, Spec{})
		r.drops(r.day(0), "a")
		r.expect("a")
		for range 2 {
			r.deletes(everything)
			r.later(30 * day)
		}
		r.wants("")
		r.drops(r.day(1), "a")
		if place != nil { // put another content
			place.put(t, "a", []byte("another\n"))
		}
		for range 2 {
			r.expect("")
			for range 2 {
				r.deletes(everything)
				r.later(30 * day)
			}
			r.wants("a")
			r.start()
		}
	})
}

func TestAFileThatWasForgottenBeforeIsNotDeleted(t *testing.T) {
	places(t, func(t *testing.T, place writable) {
		r := remembers(t, place, Spec{Remember: week})
		r.drops(r.day(0), "a")
		r.expect("a")
		r.drops(r.day(20), "b")
		r.expect("b")
		r.drops(r.day(21), "c")
		r.expect("c")
		r.folds(everything)
		if m, l := r.remembered(); m != 2 || l != 2 {
			t.Fatalf("%d names and %d segments are remembered, want b and c", m, l)
		}
		r.spec.Retain = week
		r.start()
		r.expect("")
		for range 2 {
			r.deletes(everything)
			r.later(30 * day)
		}
		r.wants("a")
	})
}

// A folder has two names in the root, and one is a link. Files below the link are never deleted.
func TestAFileBelowALinkIsNotDeleted(t *testing.T) {
	r := retains(t, nil, Spec{Paths: []string{"in", "out/x"}})
	r.drops(r.day(0), "out/x/data")
	if err := os.Symlink("out", filepath.Join(r.dir, "in")); err != nil {
		t.Fatal(err)
	}
	r.expect("in/x/data out/x/data")
	for range 3 {
		r.deletes(1) // out/x/data is not trained
		r.later(30 * day)
	}
	r.wants("in out/x/data")

	r = retains(t, nil, Spec{Paths: []string{"in"}})
	r.drops(r.day(0), "out/x/data")
	if err := os.Symlink("out", filepath.Join(r.dir, "in")); err != nil {
		t.Fatal(err)
	}
	r.expect("in/x/data")
	for range 3 {
		if gone := r.deletes(everything); len(gone) > 0 {
			t.Errorf("segments %v are reported as deleted, want none", gone)
		}
		r.later(30 * day)
	}
	r.wants("in out/x/data")
	if !strings.Contains(r.log.String(), "lies below in, which is a symbolic link") {
		t.Error(r.log.String())
	}
}

func TestAFileStaysUntilItsOtherNameIsTrained(t *testing.T) {
	for name, link := range map[string]func(dir string) error{
		"folder": func(dir string) error { return os.Symlink("out", filepath.Join(dir, "zin")) },
		"file": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "zin"), 0o700), os.Symlink("../out/data", filepath.Join(dir, "zin", "data")))
		},
		"hard link": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "zin"), 0o700), os.Link(filepath.Join(dir, "out/data"), filepath.Join(dir, "zin/data")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := retains(t, nil, Spec{Paths: []string{"out", "zin"}})
			r.drops(r.day(0), "out/data")
			if err := link(r.dir); err != nil {
				t.Fatal(err)
			}
			before := r.lies()
			segs, err := r.src.Segments(t.Context(), r.src.partition, -1, 2)
			if err != nil || len(segs) != 2 {
				t.Fatalf("%+v, %v", segs, err)
			}
			for _, r.ledger = range [][]sources.Segment{segs[:1], segs} { // at first the ledger lacks zin/data, which is listed
				for range 3 {
					r.deletes(1)
					r.later(30 * day)
				}
				r.wants(before)
			}
			for range 3 {
				r.deletes(everything)
				r.later(30 * day)
			}
			if strings.Contains(r.lies(), "out/data") {
				t.Errorf("out/data is still there, although nothing needs it: %s", r.log.String())
			}
		})
	}
}
