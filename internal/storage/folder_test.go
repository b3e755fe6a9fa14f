package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func open(t *testing.T) *Folder {
	t.Helper()
	f, err := OpenFolder(filepath.Join(t.TempDir(), "objects"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestAnObjectIsReadAsItWasPut(t *testing.T) {
	f, ctx := open(t), t.Context()
	if err := f.Put(ctx, "a/b/c-1", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		offset, length int64
		want           string
	}{{0, -1, "0123456789"}, {3, 4, "3456"}, {8, 100, "89"}, {10, 1, ""}, {50, -1, ""}} {
		got, err := f.Get(ctx, "a/b/c-1", c.offset, c.length)
		if err != nil || string(got) != c.want {
			t.Errorf("Get(%d, %d) = %q, %v; want %q", c.offset, c.length, got, err, c.want)
		}
	}
	if o, err := f.Stat(ctx, "a/b/c-1"); err != nil || o.Size != 10 {
		t.Errorf("Stat = %+v, %v", o, err)
	}
	if err := f.Put(ctx, "a/b/c-1", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if got, _ := f.Get(ctx, "a/b/c-1", 0, -1); string(got) != "new" {
		t.Errorf("after a second Put: %q", got)
	}
	if err := f.Delete(ctx, "a/b/c-1", "never/there"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Get(ctx, "a/b/c-1", 0, -1); !errors.Is(err, ErrNotFound) {
		t.Errorf("after Delete: %v", err)
	}
	if _, err := f.Stat(ctx, "a/b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Stat of a folder: %v", err)
	}
}

func TestOfTwoThatPutANewObjectOneWins(t *testing.T) {
	f, ctx := open(t), t.Context()
	var wins atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			switch err := f.PutNew(ctx, "x/one", fmt.Appendf(nil, "writer %d", i)); {
			case err == nil:
				wins.Add(1)
			case !errors.Is(err, ErrExists):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if wins.Load() != 1 {
		t.Fatalf("%d won", wins.Load())
	}
	if got, err := f.Get(ctx, "x/one", 0, 7); err != nil || string(got) != "writer " {
		t.Fatalf("%q, %v", got, err)
	}
	left, err := os.ReadDir(filepath.Join(f.String(), "x"))
	if err != nil || len(left) != 1 {
		t.Fatalf("left in the folder: %v, %v", left, err)
	}
}

func TestAListingIsInOrderAndCanGoOn(t *testing.T) {
	f, ctx := open(t), t.Context()
	keys := []string{"p/a-b", "p/a/1", "p/a/2", "p/b", "q/1"}
	for _, k := range keys {
		if err := f.Put(ctx, k, bytes.Repeat([]byte("x"), len(k))); err != nil {
			t.Fatal(err)
		}
	}
	// What a crash may leave is no object.
	if err := os.WriteFile(filepath.Join(f.String(), "p", pending+"x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	after := ""
	for {
		some, err := f.List(ctx, "p/", after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range some {
			got = append(got, o.Key)
			if o.Size != int64(len(o.Key)) {
				t.Errorf("%+v", o)
			}
			after = o.Key
		}
		if len(some) < 2 {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(keys[:4]) {
		t.Errorf("listed %v, want %v", got, keys[:4])
	}
	if some, err := f.List(ctx, "nowhere/", "", 0); err != nil || len(some) != 0 {
		t.Errorf("of a prefix without objects: %v, %v", some, err)
	}
	if all, err := f.List(ctx, "", "", 0); err != nil || len(all) != len(keys) {
		t.Errorf("of all: %v, %v", all, err)
	}
}

func TestAKeyCannotLeaveTheFolder(t *testing.T) {
	f, ctx := open(t), t.Context()
	for _, key := range []string{"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", ".hidden", "a/.b", "a b", "a\x00"} {
		if err := f.Put(ctx, key, nil); err == nil {
			t.Errorf("Put(%q) works", key)
		}
		if _, err := f.Get(ctx, key, 0, 1); err == nil {
			t.Errorf("Get(%q) works", key)
		}
		if err := f.Delete(ctx, key); err == nil {
			t.Errorf("Delete(%q) works", key)
		}
	}
}
