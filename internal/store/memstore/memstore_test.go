package memstore_test

import (
	"errors"
	"testing"

	"github.com/headrace/headrace/internal/store"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc"
)

func content(t *testing.T, s store.Store) string {
	t.Helper()
	var out string
	if err := s.Load(func(k, v []byte) error { out += string(k) + "=" + string(v) + " "; return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func set(k, v string) shardsvc.Put {
	return shardsvc.Put{Op: shardsvc.Set, Key: []byte(k), Value: []byte(v)}
}

func TestReopenFindsWhatWasCommitted(t *testing.T) {
	s := memstore.New()
	if err := s.Commit([]shardsvc.Put{set("a", "1"), set("b", "2"), set("c", "3"), set("d", "4")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit([]shardsvc.Put{{Op: shardsvc.Delete, Key: []byte("a")}, {Op: shardsvc.DeleteRange, Key: []byte("b"), Value: []byte("d")}}); err != nil {
		t.Fatal(err)
	}
	n := s.Reopen()
	if got, want := content(t, n), "d=4 "; got != want {
		t.Fatalf("after reopen: %q, want %q", got, want)
	}
	if err := s.Commit(nil); !errors.Is(err, memstore.ErrCrash) {
		t.Fatalf("a commit of the old process returned %v", err)
	}
}

func TestACrashBeforeLosesTheBatchAndOneAfterKeepsIt(t *testing.T) {
	for _, after := range []bool{false, true} {
		s := memstore.New()
		if after {
			s.After = func(n int) error { return memstore.ErrCrash }
		} else {
			s.Before = func(n int, _ []shardsvc.Put) error { return memstore.ErrCrash }
		}
		if err := s.Commit([]shardsvc.Put{set("a", "1")}); !errors.Is(err, memstore.ErrCrash) {
			t.Fatalf("the commit returned %v", err)
		}
		want := ""
		if after {
			want = "a=1 "
		}
		if got := content(t, s.Reopen()); got != want {
			t.Errorf("after=%v: %q, want %q", after, got, want)
		}
	}
}
