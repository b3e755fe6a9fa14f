package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// empty makes an empty file with an old time, so that it counts as at rest.
func empty(t *testing.T, dir, name string) {
	t.Helper()
	drop(t, dir, name, old)
	if err := os.Truncate(filepath.Join(dir, name), 0); err != nil {
		t.Fatal(err)
	}
	when := time.Now().Add(-old)
	if err := os.Chtimes(filepath.Join(dir, name), when, when); err != nil {
		t.Fatal(err)
	}
}

func TestAFileThatWasEmptyIsReadWhenItHasRecords(t *testing.T) {
	for _, complete := range []string{completeRest, completeRenamed} {
		t.Run(complete, func(t *testing.T) {
			dir := t.TempDir()
			s, after := grown(t, dir, complete, nil), int64(-1)
			empty(t, dir, "a") // its writer has written nothing yet
			drop(t, dir, "b", old)
			if got := arrived(t, s, &after); got != "b" {
				t.Fatalf("arrived: %q, want %q", got, "b")
			}
			if got := arrived(t, s, &after); got != "" || len(s.list.files) != 0 {
				t.Fatalf("want no file; %q arrived, and %q were looked at again", got, s.list.files)
			}
			drop(t, dir, "a", old/2)
			if got := arrived(t, s, &after); got != "a" {
				t.Fatalf("arrived: %q, want a", got)
			}
			if got := arrived(t, s, &after); got != "" {
				t.Fatalf("arrived: %q, want %q", got, "")
			}
		})
	}
}

func TestAFileThatWasRemovedBeforeItWasListedIsReadWhenItIsBack(t *testing.T) {
	dir := t.TempDir()
	s, after := grown(t, dir, completeRest, nil), int64(-1)
	for _, name := range []string{"a", "b", "c"} {
		drop(t, dir, name, old)
	}
	first, err := s.Segments(t.Context(), s.partition, after, 1)
	if err != nil || len(first) != 1 || first[0].Name != "a" {
		t.Fatalf("%+v, %v", first, err)
	}
	after = first[0].ID
	if err := os.Remove(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if rest, err := s.Segments(t.Context(), s.partition, after, 2); err != nil || len(rest) != 1 || rest[0].Name != "c" {
		t.Fatalf("%+v, %v", rest, err)
	}
	after++
	drop(t, dir, "b", old)
	if got := arrived(t, s, &after); got != "b" {
		t.Fatalf("arrived: %q, want b", got)
	}
}

// A file does not become older when the wall clock jumps, because its age is measured with the monotonic
// clock.
func TestAClockThatIsSetForwardMakesNoFileComplete(t *testing.T) {
	dir := t.TempDir()
	s, after := grown(t, dir, completeRest, nil), int64(-1)
	// As if the wall clock had been an hour behind at the start, and the file had been written just before
	// the clock was set right.
	s.list.growing.wall = s.list.growing.wall.Add(-time.Hour)
	s.spec.Rest = longRest
	drop(t, dir, "half", time.Hour)
	if got := arrived(t, s, &after); got != "" {
		t.Fatalf("%q counts as complete, but only because the clock jumped", got)
	}
	for name, was := range s.list.growing.young {
		was.since = was.since.Add(-time.Duration(longRest))
		s.list.growing.young[name] = was
	}
	if got := arrived(t, s, &after); got != "half" {
		t.Fatalf("arrived: %q", got)
	}
}

// Old files are moved away while links to them stay. New files must still be read.
func TestALinkWhoseFileWasRemovedStopsNoLook(t *testing.T) {
	dir := t.TempDir()
	drop(t, dir, ".away/a", old)
	if err := os.Symlink(".away/a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s, after := grown(t, dir, completeRenamed, nil), int64(-1)
	segs, err := s.Segments(t.Context(), s.partition, after, 2)
	if err != nil || len(segs) != 1 || segs[0].Name != "link" {
		t.Fatalf("%v, %v", segs, err)
	}
	after = segs[0].ID
	if err := os.Remove(filepath.Join(dir, ".away/a")); err != nil {
		t.Fatal(err)
	}
	drop(t, dir, "b", old)
	if got := arrived(t, s, &after); got != "b" {
		t.Errorf("the next look lists %q, want b", got)
	}
	drop(t, dir, ".away/c", old)
	if err := errors.Join(os.Symlink(".away/c", filepath.Join(dir, "c")), os.Remove(filepath.Join(dir, ".away/c"))); err != nil {
		t.Fatal(err)
	}
	if got := arrived(t, s, &after); got != "" {
		t.Errorf("a link to no file is listed: %q", got)
	}
}
