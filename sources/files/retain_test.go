package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// deletes calls Delete once, for the segments below one. It returns the segments whose files are deleted.
func (r *remembering) deletes(below int64) []int64 {
	r.Helper()
	found, err := r.src.Delete(r.Context(), r.src.partition, r.ledger, sources.Position{Segment: below}, anyway)
	if err != nil {
		r.Fatal(err)
	}
	return found.Gone
}

// anyway answers Delete's question as if nobody had rewound meanwhile: everything may be deleted.
func anyway([]int64) (sources.Position, error) { return sources.Position{Segment: everything}, nil }

// later makes the notes of what was settled until now so much older.
func (r *remembering) later(by time.Duration) {
	r.Helper()
	p := &r.src.deleting.passed
	for i := range p.at {
		p.at[i].Time -= int64(by)
	}
	if err := p.store(); err != nil {
		r.Fatal(err)
	}
}

// lies returns the names of the files that are there.
func (r *remembering) lies() string {
	r.Helper()
	var names []string
	if m, ok := r.place.(*memory); ok {
		m.mu.Lock()
		defer m.mu.Unlock()
		for name := range m.all {
			names = append(names, name)
		}
	} else if err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, r.dir+"/"))
		}
		return err
	}); err != nil {
		r.Fatal(err)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (r *remembering) wants(lie string) {
	r.Helper()
	if got := r.lies(); got != lie {
		r.Fatalf("there are %q, want %q\n%s", got, lie, r.log.String())
	}
}

const day = 24 * time.Hour

func retains(t *testing.T, place writable, f Spec) *remembering {
	f.Retain = week
	return remembers(t, place, f)
}

func TestAFileIsDeletedWhenNothingHasNeededItForLong(t *testing.T) {
	places(t, func(t *testing.T, place writable) {
		r := retains(t, place, Spec{})
		r.drops(r.day(0), "a", "b")
		r.drops(r.day(1), "c")
		r.expect("a b c")
		r.deletes(2) // the oldest kept checkpoint has a and b, but not c
		r.wants("a b c")
		if n := strings.Count(r.log.String(), "will be deleted"); n != 1 || !strings.Contains(r.log.String(), "left=168h0m0s") {
			t.Errorf("deletions are announced %d times: %s", n, r.log.String())
		}
		r.later(7*day - time.Hour)
		if gone := r.deletes(2); len(gone) > 0 {
			t.Errorf("segments %v are reported as deleted, want none", gone)
		}
		r.wants("a b c")
		r.later(time.Hour)
		if gone := r.deletes(2); fmt.Sprint(gone) != "[0 1]" {
			t.Errorf("segments %v are reported as deleted, want %v", gone, "[0 1]")
		}
		r.wants("c")
		if !strings.Contains(r.log.String(), "files=2 bytes=4 first=a last=b") {
			t.Error(r.log.String())
		}
		r.deletes(everything) // now c is below the mark, too
		r.later(6 * day)
		r.deletes(everything)
		r.wants("c")
		r.later(day)
		if gone := r.deletes(everything); fmt.Sprint(gone) != "[0 1 2]" {
			t.Errorf("segments %v are reported as deleted, want %v", gone, "[0 1 2]")
		}
		r.wants("")
		for range 2 {
			r.expect("") // nothing is listed again
			r.start()
			if gone := r.deletes(everything); len(gone) > 0 {
				t.Errorf("segments %v are reported as deleted before the first look", gone)
			}
			r.expect("")
			if gone := r.deletes(everything); fmt.Sprint(gone) != "[0 1 2]" {
				t.Errorf("another process reports segments %v as deleted, want [0 1 2]", gone)
			}
		}
	})
}

func TestWithoutRetainNothingIsDeleted(t *testing.T) {
	places(t, func(t *testing.T, place writable) {
		r := remembers(t, place, Spec{Remember: week})
		r.drops(r.day(0), "a")
		r.expect("a")
		r.deletes(everything)
		r.wants("a")
	})
}

// A file stays until files.retain has passed since it came, even if its records were settled before.
func TestAYoungFileIsNotDeleted(t *testing.T) {
	places(t, func(t *testing.T, place writable) {
		r := retains(t, place, Spec{})
		r.drops(time.Now().Add(-time.Hour), "young")
		r.expect("young")
		r.deletes(everything)
		r.later(30 * day)
		r.deletes(everything)
		r.wants("young")
	})
}

// The ledger may have only a part of a file, because the rest is listed but not stored yet.
func TestAFileWithSegmentsThatTheLedgerDoesNotHaveIsNotDeleted(t *testing.T) {
	r := &remembering{T: t, dir: t.TempDir(), now: time.Now().Add(-10_000 * time.Hour), read: map[string]int{}}
	r.spec = Spec{Retain: week}
	r.framing = Framing{Kind: Quoted, Delimiter: ',', Quote: '"', EmptyLines: false}
	r.start()
	r.src.blocks.segment = 64
	path := filepath.Join(r.dir, "a.csv")
	if err := os.WriteFile(path, []byte(strings.Repeat("\"x\",y\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	old := r.day(0)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	segs, err := r.src.Segments(t.Context(), r.src.partition, -1, 1000)
	if err != nil || len(segs) < 3 {
		t.Fatalf("%d segments, %v", len(segs), err)
	}
	for _, part := range []int{1, len(segs) - 1} {
		r.ledger = segs[:part]
		r.deletes(everything)
		r.later(30 * day)
		r.deletes(everything)
		r.wants("a.csv")
	}
	r.start() // the ledger still has only a part of the file
	r.src.blocks.segment = 64
	r.src.list.growing.full = 1
	r.deletes(everything)
	r.later(30 * day)
	r.deletes(everything)
	r.wants("a.csv")
	if err := r.src.look(t.Context(), time.Now()); err != nil { // finds the file, but lists no more of it
		t.Fatal(err)
	}
	g := &r.src.list.growing // as if this had begun long ago
	g.wall, g.began = g.wall.Add(-30*day), g.began.Add(-30*day)
	for range 2 { // the first call finds out when the file came
		r.deletes(everything)
		r.wants("a.csv")
	}
	r.looks()
	for range 2 {
		r.deletes(r.ledger[len(r.ledger)-1].ID) // the last segment of the file is still needed
		r.later(30 * day)
	}
	r.wants("a.csv")
	for range 2 {
		r.deletes(everything)
		r.later(30 * day)
	}
	r.wants("")
}

func TestRestartPointsOfADeletedFileAreDeleted(t *testing.T) {
	r := retains(t, nil, Spec{})
	text := make([]byte, 12<<20)
	for i := range text {
		if text[i] = byte('a' + i*i%23); i%100 == 99 {
			text[i] = '\n'
		}
	}
	path := filepath.Join(r.dir, "a.gz")
	if err := os.WriteFile(path, packGzip(t, 1, text), 0o600); err != nil {
		t.Fatal(err)
	}
	old := r.day(0)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	r.looks()
	points := func() int {
		all, err := os.ReadDir(filepath.Join(r.cache, pointsFolder))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if points() != 1 {
		t.Fatalf("%d files have restart points", points())
	}
	r.deletes(everything)
	r.later(30 * day)
	r.deletes(everything)
	r.wants("")
	if points() != 0 {
		t.Error("the restart points of a deleted file are still there")
	}
}

func TestOverlapIsRecognised(t *testing.T) {
	spec := func(root string, paths ...string) *Spec {
		return &Spec{Root: root, Paths: paths, End: endNever, Retain: dataset.Duration(time.Hour)}
	}
	for _, c := range []struct {
		a, b *Spec
		want bool
	}{
		{spec("/data", "."), spec("/data", "."), true},
		{spec("/data", "."), spec("/data/", "x/*.csv"), true},
		{spec("/data", "."), spec("/data/in", "."), true},
		{spec("/data/in", "."), spec("/data", "**/*.csv"), true},
		{spec("/data/in", "."), spec("/data", "out", "in/b"), true},
		{spec("/data", "in"), spec("/data", "in*"), true},
		{spec("/", "."), spec("/data", "x"), true},
		{spec("s3://lake/clicks", "dt=*"), spec("s3://lake", "clicks/dt=2026-11-22"), true},
		{spec("/data", "**/*.csv.gz"), spec("/data", "*.gz"), true},
		{spec("/data", "*.csv"), spec("/data", "*.csv/*.csv.gz"), true}, // Spark names a folder as others name a file
		{spec("/data", "in/*.csv"), spec("/data/in", "out.csv/part-*.gz"), true},
		{spec("/data", "*.csv"), spec("/data", "old/*.csv.gz"), false},
		{spec("/data", "*.csv"), spec("/data", "*/*.parquet"), false},
		{spec("/data", "in"), spec("/data", "into"), false},
		{spec("/data", "in/*"), spec("/data", "out/*"), false},
		{spec("/data", "dt=*"), spec("/data", "d"), false},
		{spec("/data", "*.csv"), spec("/data", "*.parquet"), false},
		{spec("/data", "."), spec("/database", "."), false},
		{spec("s3://lake/clicks", "."), spec("s3://lake2/clicks", "."), false},
	} {
		if c.a.DeletesOf(c.b) != c.want || c.b.DeletesOf(c.a) != c.want {
			t.Errorf("%s %q and %s %q overlap: want %t", c.a.Root, c.a.Paths, c.b.Root, c.b.Paths, c.want)
		}
	}
	kept := spec("/data", ".")
	kept.Retain = 0
	if kept.DeletesOf(spec("/data", ".")) || !spec("/data", ".").DeletesOf(kept) {
		t.Error("of two datasets, only the one with files.retain must count as deleting the other's files")
	}
}

// A file without a record, or that was never read, is not deleted.
func TestOtherFilesStay(t *testing.T) {
	places(t, func(t *testing.T, place writable) {
		r := retains(t, place, Spec{Remember: week, Complete: completeSuccess})
		r.drops(r.day(0), "dt=1/a", "dt=1/_SUCCESS", "dt=2/waits")
		if place == nil {
			r.drops(r.day(0), "dt=1/empty")
			if err := os.Truncate(filepath.Join(r.dir, "dt=1/empty"), 0); err != nil {
				t.Fatal(err)
			}
		} else {
			place.put(t, "dt=1/empty", nil)
		}
		r.expect("dt=1/a")
		for range 2 {
			r.deletes(everything)
			r.later(30 * day)
		}
		r.wants("dt=1/_SUCCESS dt=1/empty dt=2/waits")
		if place == nil {
			if _, err := os.Stat(filepath.Join(r.dir, "dt=1")); err != nil {
				t.Error(err)
			}
		}
	})
}

// A file that an earlier master listed in part may be too young for the next master. Then its rest is
// listed after other files.
func TestAFileWhoseRestWasListedAfterOthersIsNotDeleted(t *testing.T) {
	r := &remembering{T: t, dir: t.TempDir(), now: time.Now().Add(-10_000 * time.Hour), read: map[string]int{}}
	r.spec = Spec{Retain: week}
	r.framing = Framing{Kind: Quoted, Delimiter: ',', Quote: '"', EmptyLines: false}
	put := func(name, text string) {
		path, old := filepath.Join(r.dir, name), r.day(0)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	row := "\"x\",y\n"
	put("x/a.csv", strings.Repeat(row, 100))
	r.start()
	r.src.blocks.segment = 64
	segs, err := r.src.Segments(t.Context(), r.src.partition, -1, 2)
	if err != nil || len(segs) != 2 {
		t.Fatal(len(segs), err)
	}
	r.ledger = segs
	put("y/b.csv", row)
	put("y/_SUCCESS", "")
	r.spec.Complete = completeSuccess // allowed: this setting may change
	r.start()
	r.src.blocks.segment = 1 << 20
	r.expect("y/b.csv")
	put("x/_SUCCESS", "")
	r.expect("x/a.csv")
	b, rest := r.ledger[2].ID, r.ledger[3].ID
	for range 3 {
		r.deletes(b) // b and the segments after it are needed
		r.later(30 * day)
	}
	r.wants("x/_SUCCESS x/a.csv y/_SUCCESS y/b.csv")
	for range 3 {
		if gone := r.deletes(rest); fmt.Sprint(gone) != "[]" && fmt.Sprint(gone) != fmt.Sprint([]int64{b}) {
			t.Errorf("segments %v are reported as deleted", gone)
		}
		r.later(30 * day)
	}
	r.wants("x/_SUCCESS x/a.csv y/_SUCCESS")
	r.deletes(everything)
	r.later(3 * day)
	r.deletes(everything) // for the whole file, the time of its last segment counts
	r.wants("x/_SUCCESS x/a.csv y/_SUCCESS")
	r.later(5 * day)
	if gone := r.deletes(everything); fmt.Sprint(gone) != fmt.Sprint([]int64{segs[0].ID, segs[1].ID, b, rest}) {
		t.Errorf("segments %v are reported as deleted, want %v", gone, fmt.Sprint([]int64{segs[0].ID, segs[1].ID, b, rest}))
	}
	r.wants("x/_SUCCESS y/_SUCCESS")
}
