package files

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/storage"
)

// history is a bucket with all objects of fifty days, in the order of their names.
type history struct {
	all   []storage.Object
	asked int // how many names its answers had
}

func (h *history) String() string { return "s3://history" }

func (h *history) at(key string) (int, bool) {
	return slices.BinarySearchFunc(h.all, key, func(o storage.Object, key string) int { return strings.Compare(o.Key, key) })
}

func (h *history) Head(_ context.Context, key string) (storage.Object, error) {
	i, there := h.at(key)
	if !there {
		return storage.Object{}, storage.ErrNotFound
	}
	return h.all[i], nil
}

func (h *history) ReadAt(_ context.Context, _, _ string, p []byte, offset int64) error {
	copy(p, "record\n"[offset:])
	return nil
}

func (h *history) Page(_ context.Context, prefix, after string) ([]storage.Object, error) {
	from, there := h.at(max(prefix, after))
	if there && after >= prefix {
		from++
	}
	page := h.all[from:min(from+1000, len(h.all))]
	h.asked += len(page)
	return page, nil
}

func (h *history) Remove(_ context.Context, key, _ string) error {
	i, there := h.at(key)
	if !there {
		return storage.ErrNotFound
	}
	h.all = slices.Delete(h.all, i, i+1)
	return nil
}

// adds merges some objects into all.
func (h *history) adds(some []storage.Object) {
	slices.SortFunc(some, func(a, b storage.Object) int { return strings.Compare(a.Key, b.Key) })
	was := h.all
	h.all = make([]storage.Object, 0, len(was)+len(some))
	for len(was) > 0 && len(some) > 0 {
		from := &was
		if some[0].Key < was[0].Key {
			from = &some
		}
		h.all, *from = append(h.all, (*from)[0]), (*from)[1:]
	}
	h.all = append(append(h.all, was...), some...)
}

func (h *history) put(testing.TB, string, []byte) {}
func (h *history) remove(testing.TB, string)      {}

// A bucket has two thousand files for each of fifty days. Only names of a few days are remembered, and
// each file is read once, through many processes.
func TestAHundredThousandNamesAreNotRemembered(t *testing.T) {
	const days, perDay, window = 50, 2000, 3
	for _, c := range []struct {
		late, name string // name: the format of a file's name, from its day and a hash
	}{
		{lateSkip, "dt=%03[1]d/part-%08[2]x"},
		{lateRead, "part-%08[2]x-%03[1]d"}, // names are not in the order of time
	} {
		t.Run(c.late, func(t *testing.T) {
			h := &history{}
			r := remembers(t, h, Spec{Remember: window * 24 * dataset.Duration(time.Hour), Late: c.late})
			r.now = time.Now().Add(-(days + 1) * 24 * time.Hour)
			names, segments, asked := 0, 0, 0
			for day := range days {
				some := make([]storage.Object, perDay)
				for n := range some {
					key := fmt.Sprintf(c.name, day, uint32(day*perDay+n)*2654435761)
					some[n] = storage.Object{Key: key, Size: 7, Tag: "t" + key, Modified: r.day(day)}
				}
				h.adds(some)
				h.asked = 0
				r.looks()
				if day%10 > 0 { // the first look of a process asks for all names, to report late ones
					asked = max(asked, h.asked)
				}
				r.folds(everything)
				m, _ := r.remembered()
				names, segments = max(names, m), max(segments, len(r.ledger))
				if day%10 == 9 {
					r.start()
				}
			}
			if len(r.read) != days*perDay {
				t.Errorf("%d names were read, want %d", len(r.read), days*perDay)
			}
			for name, n := range r.read {
				if n != 1 {
					t.Fatalf("%s was read %d times", name, n)
				}
			}
			// The mark moves in the look after the one that found the newest file, and never in the first
			// look of a process.
			if most := (window + 4) * perDay; names > most || segments > 2*most {
				t.Errorf("up to %d names and %d segments were remembered, want at most %d names", names, segments, most)
			}
			if most := (window + 4) * perDay; c.late == lateSkip && asked > most {
				t.Errorf("a look asked for %d names, want at most %d", asked, most)
			}
			t.Logf("up to %d names in memory and %d segments in the ledger; a look asked for %d names at most", names, segments, asked)
		})
	}
}
