package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
)

// deletes is one call of Delete for what lies below a segment. It returns which segments are
// gone.
func (r *remembering) deletes(below int64) []int64 {
	r.Helper()
	found, err := r.src.Delete(r.Context(), r.src.partition, r.ledger, sources.Position{Segment: below}, anyway)
	if err != nil {
		r.Fatal(err)
	}
	return found.Gone
}

// anyway: nobody goes back meanwhile.
func anyway([]int64) (sources.Position, error) { return sources.Position{Segment: everything}, nil }

// later makes what was settled until now so much older.
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

// lies are the files that are there.
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
		r.deletes(2) // c is not in the oldest kept checkpoint
		r.wants("a b c")
		if n := strings.Count(r.log.String(), "will be deleted"); n != 1 || !strings.Contains(r.log.String(), "left=168h0m0s") {
			t.Errorf("deletions are announced %d times: %s", n, r.log.String())
		}
		r.later(7*day - time.Hour)
		if gone := r.deletes(2); len(gone) > 0 {
			t.Errorf("%v are told to be gone", gone)
		}
		r.wants("a b c")
		r.later(time.Hour)
		if gone := r.deletes(2); fmt.Sprint(gone) != "[0 1]" {
			t.Errorf("%v are told to be gone", gone)
		}
		r.wants("c")
		if !strings.Contains(r.log.String(), "files=2 bytes=4 first=a last=b") {
			t.Error(r.log.String())
		}
		r.deletes(everything) // c is below the mark now
		r.later(6 * day)
		r.deletes(everything)
		r.wants("c")
		r.later(day)
		if gone := r.deletes(everything); fmt.Sprint(gone) != "[0 1 2]" {
			t.Errorf("%v are told to be gone", gone)
		}
		r.wants("")
		for range 2 {
			r.expect("") // nothing is listed again
			r.start()
			if gone := r.deletes(everything); len(gone) > 0 {
				t.Errorf("%v are told to be gone before it was looked", gone)
			}
			r.expect("")
			if gone := r.deletes(everything); fmt.Sprint(gone) != "[0 1 2]" {
				t.Errorf("another process tells that %v are gone", gone)
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

// A file stays for files.retain after it came, also if its records were settled before.
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

// Somebody has touched it, or put the same object again: it is as new as that.
func TestAFileThatIsTouchedIsNotDeleted(t *testing.T) {
	places(t, func(t *testing.T, place writable) {
		r := retains(t, place, Spec{})
		r.drops(r.day(0), "a")
		r.expect("a")
		r.deletes(everything)
		r.later(30 * day)
		if place == nil { // its rights are changed
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
			t.Errorf("%v are told to be gone", gone)
		}
		r.wants("a")
		r.deletes(everything)
		if n := strings.Count(r.log.String(), "it is not deleted"); n != 1 {
			t.Errorf("it is told %d times: %s", n, r.log.String())
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

// A link is somebody's name for a file that lies elsewhere.
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

// A deletion that did not last, because of a power failure, is made again.
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
			t.Errorf("%v are told to be gone", gone)
		}
		r.wants("")
	})
}

// Another process knows since when files are not needed. If it does not, they stay longer.
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

// A dataset that is deleted and applied again does not use the samples of the first one.
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
	note(1000, 1) // it is folded: nothing to say of it
	expect(0, everything)
	note(1000, 3)
	expect(3, 1000)
	expect(4, everything)
	note(1050, 4) // less than a 64th later
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
	for i, other := range []string{"x", "y", "z"} { // another listing
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
	// In bounded memory, however long it goes on.
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

// The ledger may have a part of a file only: the rest is listed, and not stored yet.
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
	r.start() // the ledger has not all of it
	r.src.blocks.segment = 64
	r.src.list.growing.full = 1
	r.deletes(everything)
	r.later(30 * day)
	r.deletes(everything)
	r.wants("a.csv")
	if err := r.src.look(t.Context(), time.Now()); err != nil { // it is found, and not gone on with
		t.Fatal(err)
	}
	g := &r.src.list.growing // as if this had begun long ago
	g.wall, g.began = g.wall.Add(-30*day), g.began.Add(-30*day)
	for range 2 { // the first one finds out when it came
		r.deletes(everything)
		r.wants("a.csv")
	}
	r.looks()
	for range 2 {
		r.deletes(r.ledger[len(r.ledger)-1].ID) // its end is needed
		r.later(30 * day)
	}
	r.wants("a.csv")
	for range 2 {
		r.deletes(everything)
		r.later(30 * day)
	}
	r.wants("")
}

// A file that cannot be deleted is named, and the others are.
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
			t.Errorf("%v are told to be gone", gone)
		}
	}
	r.wants("b")
	if n := strings.Count(r.log.String(), "access is denied"); n != 1 || !strings.Contains(r.log.String(), "file=b") {
		t.Errorf("it is told %d times: %s", n, r.log.String())
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
		t.Errorf("while the service is away %v are told to be gone: %v", found.Gone, err)
	}
	m.refuses = nil
	r.deletes(everything)
	r.wants("")
}

// A name is forgotten only when its file is gone: else nobody would delete the file.
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
				r.start() // killed before a name was forgotten
				r.expect("")
				r.folds(everything)
				if m, l := r.remembered(); m != 2 || l != 2 {
					t.Fatalf("%d names and %d segments are remembered, want c and d", m, l)
				}
				r.start() // and after it
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
		{spec("/data", "in"), spec("/data", "into"), false},
		{spec("/data", "in/*"), spec("/data", "out/*"), false},
		{spec("/data", "dt=*"), spec("/data", "d"), false},
		{spec("/data", "*.csv"), spec("/data", "*.parquet"), false},
		{spec("/data", "."), spec("/database", "."), false},
		{spec("s3://lake/clicks", "."), spec("s3://lake2/clicks", "."), false},
	} {
		if c.a.DeletesOf(c.b) != c.want || c.b.DeletesOf(c.a) != c.want {
			t.Errorf("%s %q and %s %q: want %t", c.a.Root, c.a.Paths, c.b.Root, c.b.Paths, c.want)
		}
	}
	kept := spec("/data", ".")
	kept.Retain = 0
	if kept.DeletesOf(spec("/data", ".")) || !spec("/data", ".").DeletesOf(kept) {
		t.Error("files.retain decides who deletes")
	}
}

// A wall clock that jumps makes nothing older than it is: the monotonic clock goes on.
func TestAClockThatIsSetForwardDeletesNoFileEarly(t *testing.T) {
	r := retains(t, nil, Spec{})
	// As if the wall clock was 30 days behind when this began, and the file came five days ago
	// by the clock as it was.
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

// What has no record, or was never read, is not deleted.
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

// The name of a deleted file stays taken.
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
		if place != nil { // with another content
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

// Files that cannot be deleted do not keep the master busy: after the first time, a call tries
// few of them, and no further call follows at once. Others are deleted.
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

// A file that an earlier master listed in part may be too young for the next one. Then its
// rest is listed after other files.
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
	r.spec.Complete = completeSuccess // it may change
	r.start()
	r.src.blocks.segment = 1 << 20
	r.expect("y/b.csv")
	put("x/_SUCCESS", "")
	r.expect("x/a.csv")
	b, rest := r.ledger[2].ID, r.ledger[3].ID
	for range 3 {
		r.deletes(b) // b and what follows it is needed
		r.later(30 * day)
	}
	r.wants("x/_SUCCESS x/a.csv y/_SUCCESS y/b.csv")
	for range 3 {
		if gone := r.deletes(rest); fmt.Sprint(gone) != "[]" && fmt.Sprint(gone) != fmt.Sprint([]int64{b}) {
			t.Errorf("%v are told to be gone", gone)
		}
		r.later(30 * day)
	}
	r.wants("x/_SUCCESS x/a.csv y/_SUCCESS")
	r.deletes(everything)
	r.later(3 * day)
	r.deletes(everything) // the time of all of it is that of its rest
	r.wants("x/_SUCCESS x/a.csv y/_SUCCESS")
	r.later(5 * day)
	if gone := r.deletes(everything); fmt.Sprint(gone) != fmt.Sprint([]int64{segs[0].ID, segs[1].ID, b, rest}) {
		t.Errorf("%v are told to be gone", gone)
	}
	r.wants("x/_SUCCESS y/_SUCCESS")
}

// A folder has two names in the root. What lies below the link is never deleted.
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
			t.Errorf("%v are told to be gone", gone)
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
			for _, r.ledger = range [][]sources.Segment{segs[:1], segs} { // zin/data is listed; then stored too
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
				t.Errorf("nothing needs it any more: %s", r.log.String())
			}
		})
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

// Somebody goes back while files are about to be deleted: what is needed then stays.
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
				r.wants("a b c") // it is told before
				return sources.Position{Segment: mark}, err
			})
		}
		if found, err := delete(2, away); !errors.Is(err, away) || len(found.Gone) > 0 || fmt.Sprint(asked) != "[0 1]" {
			t.Errorf("%v is due, %v gone: %v", asked, found.Gone, err)
		}
		r.wants("a b c")
		if found, err := delete(1, nil); err != nil || len(found.Gone) > 0 || fmt.Sprint(asked) != "[0 1]" {
			t.Errorf("%v is due, %v gone: %v", asked, found.Gone, err)
		}
		r.wants("a b c") // the mark went back, so the time of all begins anew
		r.deletes(1)
		r.later(30 * day)
		if gone := r.deletes(1); fmt.Sprint(gone) != "[0]" {
			t.Errorf("%v gone", gone)
		}
		r.wants("b c")
	})
}
