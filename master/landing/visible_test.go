package landing

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headrace/headrace/internal/chunk"
)

// Chunks are listed in their order, over the borders of pages. Those that are deleted, and
// those that no commit has named, are not among them.
func TestTheChunksThatCanBeLookedAtAreListed(t *testing.T) {
	s := start(t)
	var visible []string
	for i := range 7 {
		id := fmt.Sprint("t", i)
		locator := s.staged(t, id, 1, lines("a", "b"))
		visible = append(visible, locator)
		if _, err := s.Commit(t.Context(), "clicks", id, []string{locator}); err != nil {
			t.Fatal(err)
		}
	}
	s.staged(t, "never", 1, lines("c"))
	list := func(most int) (all []string) {
		t.Helper()
		for after := int64(-1); ; {
			stream, some, err := s.Visible(t.Context(), "clicks", 1, after, most)
			if err != nil || stream == "" || len(some) > most {
				t.Fatal(stream, some, err)
			}
			if len(some) == 0 {
				return all
			}
			for _, g := range some {
				if g.Start != 0 || g.End != 2 {
					t.Errorf("%+v", g)
				}
				all, after = append(all, string(g.Locator)), g.ID
			}
		}
	}
	for _, most := range []int{1, 3, 100} {
		if got := list(most); !slices.Equal(got, visible) {
			t.Errorf("at most %d a page: %v, and %v were committed", most, got, visible)
		}
	}
	for _, text := range visible[:3] {
		l, _, err := chunk.ParseLocator(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.store.Delete(t.Context(), l.Key); err != nil {
			t.Fatal(err)
		}
	}
	for _, most := range []int{1, 3, 100} {
		if got := list(most); !slices.Equal(got, visible[3:]) {
			t.Errorf("at most %d a page: %v, and %v are there", most, got, visible[3:])
		}
	}
	if _, none, err := s.Visible(t.Context(), "clicks", 0, -1, 10); err != nil || len(none) != 0 {
		t.Errorf("of another partition: %v, %v", none, err)
	}
	if _, _, err := s.Visible(t.Context(), "clicks", 99, -1, 10); err == nil {
		t.Error("there is no partition 99")
	}
}
