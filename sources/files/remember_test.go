package files

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// remembering is a source over a growing folder or bucket, which forgets old names, and a ledger that
// folds segments as the master's does.
type remembering struct {
	*testing.T
	place writable // nil: a folder
	dir   string
	cache string
	spec  Spec
	// framing is lines if it is not set.
	framing Framing
	src     *Source
	ledger  []sources.Segment
	log     bytes.Buffer
	now     time.Time
	read    map[string]int
	// touched makes the source use the time of a file's last change of any kind, which no program can set.
	touched bool
}

func remembers(t *testing.T, place writable, f Spec) *remembering {
	r := &remembering{T: t, place: place, spec: f, now: time.Now().Add(-10_000 * time.Hour), read: map[string]int{}}
	if place == nil {
		r.dir = t.TempDir()
	}
	r.start()
	return r
}

// start replaces the source by that of another process.
func (r *remembering) start() {
	r.Helper()
	if r.src != nil {
		if err := r.src.Close(); err != nil {
			r.Fatal(err)
		}
	}
	f := r.spec
	f.MaxRecord, f.End = 1<<20, endNever
	if f.Complete == "" {
		f.Complete = completeRenamed
	}
	if r.cache == "" {
		r.cache = r.TempDir()
	}
	if r.framing.Kind == 0 {
		r.framing = Framing{Kind: Lines, EmptyLines: true}
	}
	o := Options{Dataset: "d", Framing: r.framing, Cache: r.cache, Spec: &f, Known: slices.Clone(r.ledger),
		Logger: slog.New(slog.NewTextHandler(&r.log, nil))}
	if r.place != nil {
		f.Root, o.Objects = r.place.String(), opener(r.place)
	} else {
		f.Root, o.AllowedRoots = r.dir, []string{r.dir}
	}
	f.Fill()
	var err error
	if r.src, err = Open(o); err != nil {
		r.Fatal(err)
	}
	r.src.deleting.within = time.Hour
	src := r.src
	r.Cleanup(func() { src.Close() })
	if !r.touched {
		src.came = func(modified, _ int64) int64 { return modified }
	}
}

// drops writes files with a given time.
func (r *remembering) drops(at time.Time, names ...string) {
	r.Helper()
	for _, name := range names {
		if r.place == nil {
			drop(r.T, r.dir, name, time.Since(at))
			continue
		}
		r.place.put(r, name, []byte(name+"\n"))
		if m, ok := r.place.(*memory); ok {
			m.mu.Lock()
			o := m.all[name]
			o.Modified = at
			m.all[name] = o
			m.mu.Unlock()
		}
	}
}

// looks lists what is new, counts it as read, and returns the names.
func (r *remembering) looks() string {
	r.Helper()
	r.src.list.growing.looked = r.src.list.growing.looked.Add(-time.Hour)
	if r.src.list.growing.looked.Before(time.Unix(0, 0)) {
		r.src.list.growing.looked = time.Time{}
	}
	var names []string
	for {
		after := int64(-1)
		if n := len(r.ledger); n > 0 {
			after = r.ledger[n-1].ID
		}
		segs, err := r.src.Segments(r.Context(), r.src.partition, after, 100)
		if err != nil {
			r.Fatal(err)
		}
		for _, g := range segs {
			names = append(names, g.Name)
			r.read[g.Name]++
		}
		if r.ledger = append(r.ledger, segs...); len(segs) < 100 {
			return strings.Join(names, " ")
		}
	}
}

func (r *remembering) expect(want string) {
	r.Helper()
	if got := r.looks(); got != want {
		r.Fatalf("arrived: %q, want %q", got, want)
	}
}

// folds forgets the segments below one that can be forgotten, as the core does.
func (r *remembering) folds(below int64) {
	r.Helper()
	before, needed, err := r.src.Forget(r.Context(), r.src.partition, r.ledger, sources.Position{Segment: below})
	if err != nil {
		r.Fatal(err)
	}
	var kept []sources.Segment
	for i, g := range r.ledger {
		_, need := slices.BinarySearch(needed, g.ID)
		if need || i == len(r.ledger)-1 || g.ID >= before || g.ID >= below {
			kept = append(kept, g)
			continue
		}
		g.Locator = nil
		if n := len(kept); n > 0 && kept[n-1].Locator == nil {
			g.Start -= kept[n-1].End - kept[n-1].Start
			kept = kept[:n-1]
		}
		kept = append(kept, g)
	}
	r.ledger = kept
}

// remembered returns the number of names in memory and of segments in the ledger.
func (r *remembering) remembered() (memory, ledger int) {
	for _, g := range r.ledger {
		if g.Locator != nil {
			ledger++
		}
	}
	return len(r.src.list.growing.taken), ledger
}

const everything = math.MaxInt64

const week = dataset.Duration(7 * 24 * time.Hour)

// places runs f with a folder and with a bucket.
func places(t *testing.T, f func(t *testing.T, place writable)) {
	t.Run("folder", func(t *testing.T) { f(t, nil) })
	t.Run("bucket", func(t *testing.T) { f(t, newMemory()) })
}

func TestAForgottenFileIsNotReadAgain(t *testing.T) {
	for _, late := range []string{lateRead, lateSkip} {
		t.Run(late, func(t *testing.T) {
			places(t, func(t *testing.T, place writable) {
				r := remembers(t, place, Spec{Remember: week, Late: late})
				r.drops(r.day(0), "a", "b")
				r.drops(r.day(5), "c")
				r.expect("a b c")
				r.folds(everything)
				r.drops(r.day(10), "d")
				r.expect("d") // its locator has the mark: files before day -2 are old
				r.folds(everything)
				if m, l := r.remembered(); m != 4 || l != 4 {
					t.Fatalf("%d names and %d segments are remembered, but nothing is old yet", m, l)
				}
				r.drops(r.day(11), "e")
				r.expect("e") // files before day 3 are old now
				r.folds(1)    // a kept checkpoint needs b
				if m, l := r.remembered(); m != 4 || l != 4 {
					t.Fatalf("%d names and %d segments are remembered, although a checkpoint needs b", m, l)
				}
				r.folds(everything)
				if m, l := r.remembered(); m != 3 || l != 3 {
					t.Fatalf("%d names and %d segments are remembered, want c, d and e", m, l)
				}
				for range 3 { // in this process and in two others
					r.expect("")
					r.start()
				}
				r.drops(r.day(12), "f")
				r.expect("f")
				if _, err := r.src.Open(t.Context(), sources.Range{Partition: r.src.partition, Segment: 1, Start: -2, End: 2}, sources.Position{Segment: 1}, nil); err == nil || !strings.Contains(err.Error(), "files.remember") {
					t.Errorf("opening a forgotten file returns %v", err)
				}
				if strings.Contains(r.log.String(), "late") {
					t.Errorf("no file is late, but the log says %s", r.log.String())
				}
			})
		})
	}
}

func (r *remembering) day(n int) time.Time { return r.now.Add(time.Duration(n) * 24 * time.Hour) }

// With late: skip, a name below the mark is passed over and reported. With late: read, it is read like any
// other if the file is young.
func TestLateNamesFollowTheRule(t *testing.T) {
	for _, late := range []string{lateRead, lateSkip} {
		t.Run(late, func(t *testing.T) {
			places(t, func(t *testing.T, place writable) {
				r := remembers(t, place, Spec{Remember: week, Late: late})
				r.drops(r.day(0), "dt=1/a")
				r.drops(r.day(20), "dt=3/c")
				r.expect("dt=1/a dt=3/c")
				r.drops(r.day(21), "dt=3/d")
				r.expect("dt=3/d")
				r.folds(everything)
				if m, _ := r.remembered(); m != 2 {
					t.Fatalf("%d names are remembered, want 2", m)
				}
				r.drops(r.day(22), "dt=0/young", "dt=1/b", "dt=3/b")
				r.drops(r.day(2), "dt=4/old")
				switch late {
				case lateRead:
					r.expect("dt=0/young dt=1/b dt=3/b")
				case lateSkip:
					r.expect("dt=4/old")
					if strings.Contains(r.log.String(), "young") {
						t.Errorf("a look that did not ask for all names reported late ones: %s", r.log.String())
					}
				}
				r.src.list.growing.whole = time.Time{} // an hour later
				r.expect("")
				r.src.list.growing.whole = time.Time{}
				r.expect("")
				said := r.log.String()
				for _, name := range []string{"dt=0/young", "dt=1/b", "dt=3/b"} {
					if n := strings.Count(said, name); late == lateSkip && n != 1 || late == lateRead && n != 0 {
						t.Errorf("late: %s reported %s %d times: %s", late, name, n, said)
					}
				}
				if strings.Contains(said, "dt=1/a") {
					t.Errorf("a forgotten name was reported as late: %s", said)
				}
			})
		})
	}
}

// The file system knows when a file came to its name, whatever time was set for the file.
func TestAFileThatIsMovedThereWithAnOldTimeIsTold(t *testing.T) {
	r := remembers(t, nil, Spec{Remember: week})
	r.drops(r.day(0), "a")
	r.drops(r.day(20), "c")
	r.expect("a c")
	r.drops(r.day(21), "d")
	r.expect("d")
	r.folds(everything)
	r.touched = true
	r.src.came = cameLast
	// Forgotten files came long ago. In this test all files came just now, so remove the forgotten one.
	if err := os.Remove(filepath.Join(r.dir, "a")); err != nil {
		t.Fatal(err)
	}
	r.drops(r.day(1), "moved")
	r.expect("")
	r.expect("")
	if n := strings.Count(r.log.String(), "file=moved"); n != 1 {
		t.Errorf("a file that came late was reported %d times, want once: %s", n, r.log.String())
	}
}

// A process dies while it lists the files that a look found. The next process knows which of them are
// left, however old they are.
func TestWhatALookFoundIsListedByTheNextProcess(t *testing.T) {
	for _, late := range []string{lateRead, lateSkip} {
		t.Run(late, func(t *testing.T) {
			places(t, func(t *testing.T, place writable) {
				r := remembers(t, place, Spec{Remember: week, Late: late})
				r.drops(r.day(30), "b", "c")
				r.drops(r.day(0), "a", "z")
				segs, err := r.src.Segments(t.Context(), r.src.partition, -1, 2)
				if err != nil || len(segs) != 2 {
					t.Fatalf("%+v, %v", segs, err)
				}
				r.ledger = segs
				r.start()
				r.folds(everything)
				r.expect("c z")
			})
		})
	}
}

// A file with a time in the future makes no other file old.
func TestAFileOfTheFutureForgetsNothing(t *testing.T) {
	places(t, func(t *testing.T, place writable) {
		r := remembers(t, place, Spec{Remember: week})
		r.drops(time.Now().Add(1000*time.Hour), "future")
		r.expect("future")
		r.drops(time.Now().Add(-time.Hour), "a")
		r.expect("a")
		r.drops(time.Now().Add(-100*time.Hour), "b")
		r.expect("b")
		r.folds(everything)
		if m, l := r.remembered(); m != 3 || l != 3 {
			t.Errorf("%d names and %d segments are remembered, want 3", m, l)
		}
	})
}

// A file that was read and is written to later is young again. So its name is not forgotten, and the file
// does not count as new.
func TestAFileThatIsTouchedStaysRemembered(t *testing.T) {
	places(t, func(t *testing.T, place writable) {
		r := remembers(t, place, Spec{Remember: week})
		r.drops(r.day(0), "a", "b")
		r.expect("a b")
		r.drops(r.day(20), "c")
		r.expect("c")
		r.drops(r.day(21), "d", "a")
		r.expect("d")
		r.folds(everything)
		r.start()
		r.expect("")
		if m, l := r.remembered(); m != 3 || l != 3 {
			t.Errorf("%d names and %d segments are remembered, want a, c and d", m, l)
		}
		r.drops(r.day(40), "e")
		r.expect("e")
		r.drops(r.day(41), "f")
		r.expect("f")
		r.folds(everything)
		if m, l := r.remembered(); m != 2 || l != 2 {
			t.Errorf("%d names and %d segments are remembered, want e and f", m, l)
		}
		r.expect("")
	})
}

// Forgotten files stay forgotten when files.remember changes, or is removed from the spec.
func TestARuleThatChangesReadsNothingAgain(t *testing.T) {
	places(t, func(t *testing.T, place writable) {
		r := remembers(t, place, Spec{})
		r.drops(r.day(0), "a", "m")
		r.expect("a m") // read without files.remember, so no times are noted
		for i, f := range []Spec{{Remember: week}, {Remember: week, Late: lateSkip}, {}, {Remember: 2 * week}, {}, {Remember: week}} {
			r.spec = f
			r.start()
			for k := range 2 {
				name := fmt.Sprintf("n%d%d", i, k)
				r.drops(r.day(20+20*i+k), name)
				r.expect(name)
				r.folds(everything)
				r.expect("")
			}
		}
		if m, l := r.remembered(); m > 4 || l > 4 {
			t.Errorf("%d names and %d segments are remembered", m, l)
		}
	})
}

// In a bucket whose names are in the order of time, a look asks only for names from the mark on.
func TestALookAsksForNamesFromTheMarkOn(t *testing.T) {
	b := newMemory()
	r := remembers(t, b, Spec{Remember: week, Late: lateSkip})
	for i := range 30 {
		r.drops(r.day(i), fmt.Sprintf("dt=%02d/part", i))
	}
	r.looks()
	r.drops(r.day(31), "dt=31/part")
	r.expect("dt=31/part")
	b.pages.Store(0)
	r.expect("")
	if n := b.pages.Load(); n > 4 { // a page has 7 names, and the last page is empty
		t.Errorf("a look asked for %d pages, want at most 4", n)
	}
}

// A file is read even if its _SUCCESS comes after a longer time than names are remembered.
func TestAFileThatWaitsIsNotPassedOver(t *testing.T) {
	for _, late := range []string{lateRead, lateSkip} {
		t.Run(late, func(t *testing.T) {
			places(t, func(t *testing.T, place writable) {
				r := remembers(t, place, Spec{Remember: week, Late: late, Complete: completeSuccess})
				r.drops(r.day(0), "dt=0/a", "dt=0/_SUCCESS")
				r.drops(r.day(1), "dt=1/b") // without _SUCCESS, as if its writer had failed
				for _, d := range []int{20, 21, 40, 41} {
					dir := fmt.Sprintf("dt=%d", d)
					r.drops(r.day(d), dir+"/c", dir+"/_SUCCESS")
					if got := r.looks(); !strings.HasSuffix(got, dir+"/c") {
						t.Fatalf("got %q, want one that ends with %q", got, dir+"/c")
					}
					r.folds(everything)
				}
				if n := strings.Count(r.log.String(), "waits to be complete"); n != 1 || !strings.Contains(r.log.String(), "dt=1/b") {
					t.Errorf("%d lines in the log, want 1: %s", n, r.log.String())
				}
				r.start()
				r.drops(r.day(42), "dt=1/_SUCCESS")
				r.expect("dt=1/b")
				r.drops(r.day(43), "dt=43/c", "dt=43/_SUCCESS")
				r.expect("dt=43/c")
				r.drops(r.day(44), "dt=44/c", "dt=44/_SUCCESS")
				r.expect("dt=44/c")
				r.folds(everything)
				if m, _ := r.remembered(); m > 5 {
					t.Errorf("%d names are remembered", m)
				}
			})
		})
	}
}

func TestALocatorCarriesTheMark(t *testing.T) {
	for _, low := range []lowMark{{}, {Time: -5, Edge: 7}, {Name: "dt=2026-11-22/part", Edge: 1 << 60}} {
		l := locator{Root: "/data", Path: "a", Identity: identity{Size: 9}, End: 9, Came: 12, Low: low}
		got, err := decodeLocator(l.encode())
		if err != nil || got.Low != low || got.Came != 12 {
			t.Errorf("%+v: %+v, %v", low, got, err)
		}
	}
}
