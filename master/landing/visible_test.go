package landing

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headrace/headrace/internal/chunk"
)

// Visible chunks are listed in their order, in pages of any size. Deleted chunks and chunks that no
// commit has named are not listed.
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
					t.Errorf("a listed chunk is %+v, want the records [0, 2)", g)
				}
				all, after = append(all, string(g.Locator)), g.ID
			}
		}
	}
	for _, most := range []int{1, 3, 100} {
		if got := list(most); !slices.Equal(got, visible) {
			t.Errorf("in pages of %d the chunks are %v, want %v", most, got, visible)
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
			t.Errorf("after a deletion, in pages of %d, the chunks are %v, want %v", most, got, visible[3:])
		}
	}
	if _, none, err := s.Visible(t.Context(), "clicks", 0, -1, 10); err != nil || len(none) != 0 {
		t.Errorf("another partition has the chunks %v (%v), want none", none, err)
	}
	if _, _, err := s.Visible(t.Context(), "clicks", 99, -1, 10); err == nil {
		t.Error("partition 99 does not exist, but Visible returned no error")
	}
}
