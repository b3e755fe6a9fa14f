package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

func TestQuotedCSVIsCutAtRecordBordersIntoIndexedSegments(t *testing.T) {
	var b strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&b, "%d,\"text\nwith lines\n\"\n", i)
	}
	bl := blocks{read: 1 << 20, records: 1000, overrun: 100, segment: 10_000, every: 1_000, scan: 4096}
	s := one(t, []byte(b.String()), Framing{Kind: Quoted, Quote: '"', Delimiter: ','}, bl)
	segs := sourcetest.Segments(t, s, s.partition, 2)
	if len(segs) < 8 {
		t.Fatalf("%d segments", len(segs))
	}
	at := int64(0)
	for _, g := range segs {
		l, err := decodeLocator(g.Locator)
		if err != nil {
			t.Fatal(err)
		}
		if g.Start != at || g.End-g.Start > bl.segment+bl.every || l.Starts[0] != g.Start {
			t.Errorf("segment [%d, %d) comes after %d, with index %v", g.Start, g.End, at, l.Starts)
		}
		for i, start := range l.Starts {
			if text := b.String()[start:]; strings.Index(text, ",") > 4 || (i > 0 && start-l.Starts[i-1] > 2*bl.every) {
				t.Errorf("no record begins at %d: %q", start, text[:20])
			}
		}
		at = g.End
	}
	if at != int64(b.Len()) {
		t.Errorf("the last segment ends at %d, want the file's end, %d", at, b.Len())
	}
}

func TestAQuoteThatIsNeverClosedIsToldWithFileAndOffset(t *testing.T) {
	content := "a,b\n1,\"two\n\"\n3,\"never closed\n4,5\n"
	s := one(t, []byte(content), Framing{Kind: Quoted, Quote: '"', Delimiter: ','}, defaultBlocks)
	_, err := s.Segments(t.Context(), s.partition, -1, 10)
	var bad *sources.Malformed
	if !errors.As(err, &bad) || bad.Position.Offset != 13 || bad.Name != "f" || !strings.Contains(err.Error(), "never closed") {
		t.Errorf("got %v", err)
	}
}

func TestAQuoteThatIsNeverClosedInALargeFileIsTooLarge(t *testing.T) {
	content := "a\n\"" + strings.Repeat("0123456789\n", 1<<18)
	s := one(t, []byte(content), Framing{Kind: Quoted, Quote: '"', Delimiter: ','}, defaultBlocks)
	_, err := s.Segments(t.Context(), s.partition, -1, 10)
	var large *sources.TooLarge
	if !errors.As(err, &large) || large.Position.Offset != 2 {
		t.Errorf("got %v", err)
	}
}

const quotedLines = 3000

func quotedOptions(t *testing.T) (Options, blocks) {
	t.Helper()
	dir := tree(t, map[string]string{"f": strings.Repeat("1,\"two\nlines\"\n", quotedLines)})
	return Options{Spec: spec(dir), Framing: Framing{Kind: Quoted, Quote: '"', Delimiter: ','}},
		blocks{read: 1 << 20, records: 1000, overrun: 100, segment: 5000, every: 500, scan: 1000}
}

func TestAQuotedFileThatChangesHalfwayThroughItsListingIsTold(t *testing.T) {
	o, b := quotedOptions(t)
	s := lineSource(t, o)
	s.blocks = b
	known, err := s.Segments(t.Context(), s.partition, -1, 3)
	if err != nil || len(known) != 3 {
		t.Fatalf("%v, %v", known, err)
	}
	if err := os.Chtimes(o.Spec.Root+"/f", time.Time{}, time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	var changed *sources.Changed
	if _, err := s.Segments(t.Context(), s.partition, 2, 3); !errors.As(err, &changed) || changed.Range.Start != known[2].End || changed.Name != "f" {
		t.Errorf("the process that lists the file says %v", err)
	}
	o.Known = known
	s = lineSource(t, o)
	s.blocks = b
	changed = nil
	if _, err := s.Segments(t.Context(), s.partition, 2, 3); !errors.As(err, &changed) || changed.Range.Start != known[2].End {
		t.Errorf("another process says %v", err)
	}
}

func TestAQuotedFileIsListedOnWhereAnotherProcessCameTo(t *testing.T) {
	o, b := quotedOptions(t)
	s := lineSource(t, o)
	s.blocks = b
	all := sourcetest.Segments(t, s, s.partition, 100)
	for n := range len(all) + 1 {
		o.Known = all[:n]
		s := lineSource(t, o)
		s.blocks = b
		again := sourcetest.Segments(t, s, s.partition, 4)
		if !slices.EqualFunc(again, all, func(a, b sources.Segment) bool {
			return a.ID == b.ID && a.Start == b.Start && a.End == b.End && slices.Equal(a.Locator, b.Locator)
		}) {
			t.Fatalf("with %d of %d known: %v", n, len(all), again)
		}
	}
}

func TestAFileThatIsBeingWrittenIsListedWhenItRests(t *testing.T) {
	o, b := quotedOptions(t)
	s := lineSource(t, o)
	s.blocks = b
	// Take the first step of listing, which opens the file. Then the file grows.
	if err := errors.Join(s.findFiles(t.Context()), s.listMore(t.Context())); err != nil || s.list.current.f == nil {
		t.Fatalf("%v", err)
	}
	f, err := os.OpenFile(o.Spec.Root+"/f", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("3,\"more\"\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	var temporary *sources.Temporary
	if _, err := s.Segments(t.Context(), s.partition, -1, 100); !errors.As(err, &temporary) || !strings.Contains(err.Error(), "is being written") {
		t.Fatalf("got %v", err)
	}
	count := 0
	for _, g := range sourcetest.Segments(t, s, s.partition, 100) {
		got, err := readRange(t, s, g, g.Start, g.End)
		if err != nil {
			t.Fatal(err)
		}
		count += len(got)
	}
	if count != quotedLines+1 {
		t.Errorf("%d records", count)
	}
}

func TestARangeThatReachesOutOfItsSegmentGivesOnlyTheSegmentsRecords(t *testing.T) {
	o, b := quotedOptions(t)
	s := lineSource(t, o)
	s.blocks = b
	g := sourcetest.Segments(t, s, s.partition, 100)[1]
	want, err := readRange(t, s, g, g.Start, g.End)
	if err != nil || len(want) == 0 {
		t.Fatal(err)
	}
	got, err := readRange(t, s, g, g.Start-100, g.End+100)
	if err != nil || len(got) != len(want) || got[0].Position != want[0].Position {
		t.Errorf("%d records, want %d, %v", len(got), len(want), err)
	}
	if got, err := readRange(t, s, g, -5, 0); err != nil || len(got) > 0 {
		t.Errorf("%d records before it, %v", len(got), err)
	}
}

func TestASmallFileIsListedWithoutRoomForALargeOne(t *testing.T) {
	for _, c := range []struct {
		name    string
		content []byte
		framing Framing
	}{
		{"quoted", []byte("1,2\n"), Framing{Kind: Quoted, Quote: '"', Delimiter: ','}},
		{"lines.gz", packGzip(t, 1, []byte("1\n")), Framing{Kind: Lines}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const files = 200
			dir := t.TempDir()
			for i := range files {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, c.name)), c.content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, err := Open(Options{Dataset: "d", Framing: c.framing, AllowedRoots: []string{dir}, Spec: &Spec{Root: dir, MaxRecord: 1 << 20}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if all, err := listAll(t, s); err != nil || len(all) != files {
				t.Fatalf("%d segments, %v", len(all), err)
			}
			runtime.ReadMemStats(&after)
			if each := (after.TotalAlloc - before.TotalAlloc) / files; each > 512<<10 {
				t.Errorf("listing a file of %d bytes takes %d bytes of memory", len(c.content), each)
			}
		})
	}
}
