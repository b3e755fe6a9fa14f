package files

import (
	"testing"
	"time"

	"github.com/headrace/headrace/sources"
)

// grownBucket opens a bucket without an end.
func grownBucket(t *testing.T, b writable, f Spec, known []sources.Segment) *Source {
	t.Helper()
	f.Root, f.MaxRecord, f.End = b.String(), 1<<20, endNever
	f.Fill()
	s, err := Open(Options{Dataset: "d", Framing: Framing{Kind: Lines, EmptyLines: true}, Objects: opener(b), Spec: &f, Known: known})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// objectsThatComeLater puts objects one after the other, and checks that each look lists the new ones.
func objectsThatComeLater(t *testing.T, b writable) {
	s, after := grownBucket(t, b, Spec{Paths: []string{"dt=*/*", "late"}}, nil), int64(-1)
	put := func(names ...string) {
		for _, name := range names {
			b.put(t, name, []byte(name+"\n"))
		}
	}
	expect := func(want string) {
		t.Helper()
		if got := arrived(t, s, &after); got != want {
			t.Fatalf("arrived: %q, want %q", got, want)
		}
	}
	expect("") // an empty bucket is no error
	put("dt=2/b", "dt=2/c", "other/x", "dt=2/_SUCCESS", "dt=2/.hidden", "dt=2/d.tmp")
	b.put(t, "dt=2/empty", nil)
	expect("dt=2/b dt=2/c")
	expect("")
	put("late", "dt=1/a", "dt=2/empty") // dt=2/empty has a record now
	expect("dt=1/a dt=2/empty late")
	b.remove(t, "dt=2/b")
	put("dt=3/e")
	expect("dt=3/e")

	known := s.listed(-1, len(s.segments))
	put("dt=3/f")
	s = grownBucket(t, b, Spec{Paths: []string{"dt=3/*"}}, known) // the ledger knows dt=3/e
	expect("dt=3/f")
}

func TestObjectsThatComeLaterAreListedOnce(t *testing.T) { objectsThatComeLater(t, newMemory()) }

func TestObjectsWaitForSuccessOrRest(t *testing.T) {
	b := newMemory()
	s, after := grownBucket(t, b, Spec{Complete: completeSuccess}, nil), int64(-1)
	b.put(t, "day=1/hour=0/part-0", []byte("day=1/hour=0/part-0\n"))
	if got := arrived(t, s, &after); got != "" {
		t.Fatalf("arrived: %q, want %q", got, "")
	}
	b.put(t, "day=1/_SUCCESS", nil)
	if got := arrived(t, s, &after); got != "day=1/hour=0/part-0" {
		t.Fatalf("arrived: %q, want %q", got, "day=1/hour=0/part-0")
	}

	b = newMemory()
	s, after = grownBucket(t, b, Spec{Complete: completeRest}, nil), -1
	s.spec.Rest = longRest
	b.put(t, "new", []byte("new\n"))
	if got := arrived(t, s, &after); got != "" {
		t.Fatalf("arrived: %q, want %q", got, "")
	}
	was := s.list.growing.young["new"]
	was.since = was.since.Add(-time.Duration(longRest))
	s.list.growing.young["new"] = was
	if got := arrived(t, s, &after); got != "new" {
		t.Fatalf("arrived: %q, want %q", got, "new")
	}
}
