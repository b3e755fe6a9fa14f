package files

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// hear returns a buffer to which the source logs from now on.
func hear(s *Source) *bytes.Buffer {
	var b bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&b, nil))
	return &b
}

func TestNewContentUnderANameThatWasReadIsToldOnce(t *testing.T) {
	dir := t.TempDir()
	s, after := grown(t, dir, completeRest, nil), int64(-1)
	log := hear(s)
	drop(t, dir, "a", old)
	drop(t, dir, "b", old)
	if got := arrived(t, s, &after); got != "a b" {
		t.Fatalf("arrived: %q, want %q", got, "a b")
	}
	known := s.listed(-1, len(s.segments)) // with b
	if arrived(t, s, &after); log.Len() > 0 {
		t.Errorf("nothing has changed, but the log says %s", log)
	}
	drop(t, dir, "b", old+time.Minute) // another time
	for range 3 {
		if got := arrived(t, s, &after); got != "" {
			t.Fatalf("%q was read again", got)
		}
	}
	said := func(log *bytes.Buffer) {
		t.Helper()
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "file=b") || !strings.Contains(text, "under a new name") {
			t.Errorf("the log says %q", text)
		}
	}
	said(log)
	next := grown(t, dir, completeRest, known) // another process
	log = hear(next)
	arrived(t, next, &after)
	said(log)

	b := newMemory()
	s, after = grownBucket(t, b, Spec{}, nil), -1
	log = hear(s)
	b.put(t, "b", []byte("b\n"))
	arrived(t, s, &after)
	b.put(t, "b", []byte("other content\n"))
	arrived(t, s, &after)
	arrived(t, s, &after)
	said(log)
}

// However many files have changed since they were read, one look asks for the state of a bounded number
// of them, and the log does not name all.
func TestLooksAtFilesThatWereReadAreBounded(t *testing.T) {
	dir := t.TempDir()
	s := grown(t, dir, completeRest, nil)
	log, n := hear(s), againMost+againMost/2
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("f%05d", i)
		drop(t, dir, names[i], old)
		s.list.growing.taken[names[i]] = name{mark: firstMark} // another state than the file has
	}
	l := look{s: s}
	left := func() (n int) {
		for _, m := range s.list.growing.taken {
			if m.mark != told {
				n++
			}
		}
		return n
	}
	if l.someAgain(t.Context(), names); left() != n-againMost {
		t.Errorf("after one look %d of %d are left", left(), n)
	}
	if l.someAgain(t.Context(), names); left() != 0 {
		t.Errorf("after two looks %d of %d are left", left(), n)
	}
	if lines := strings.Count(log.String(), "\n"); lines != toldMost {
		t.Errorf("%d lines in the log, want %d", lines, toldMost)
	}
}
