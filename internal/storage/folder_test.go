package storage_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/internal/storage/storagetest"
)

func open(t *testing.T) *storage.Folder {
	t.Helper()
	f, err := storage.OpenFolder(filepath.Join(t.TempDir(), "objects"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestAFolderPassesTheSuite(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store { return open(t) })
}

// fresh is a folder whose Put is PutFresh, for writers that draw a random key for each object.
type fresh struct{ *storage.Folder }

func (f fresh) Put(ctx context.Context, key string, data []byte) error {
	return f.PutFresh(ctx, key, data)
}

func TestAFolderPassesTheSuiteWithFreshKeys(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store { return fresh{open(t)} })
}

func TestAFailedPutLeavesNothing(t *testing.T) {
	f, ctx := open(t), t.Context()
	if err := f.Put(ctx, "p/taken/a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for what, put := range map[string]func(context.Context, string, []byte) error{"Put": f.Put, "PutNew": f.PutNew, "PutFresh": f.PutFresh} {
		if err := put(ctx, "p/taken", []byte("x")); err == nil {
			t.Errorf("%s at the place of a folder returns no error", what)
		}
		if left, err := os.ReadDir(filepath.Join(f.String(), "p")); err != nil || len(left) != 1 {
			t.Errorf("%s has left %v, %v", what, left, err)
		}
	}
}

func TestWhatACrashLeavesInAFolderIsNoObject(t *testing.T) {
	f, ctx := open(t), t.Context()
	if err := f.PutNew(ctx, "p/a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(f.String(), "p")); err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
	if err := os.WriteFile(filepath.Join(f.String(), "p", ".new-x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := f.List(ctx, "", "", 0); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestAFolderIsSweptOfWhatKilledWritersHaveLeft(t *testing.T) {
	f, ctx := open(t), t.Context()
	for _, key := range []string{"a/b/1", "a/c/2"} {
		if err := f.Put(ctx, key, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(f.String(), name) }
	now := time.Now()
	for name, age := range map[string]time.Duration{"a/b/.new-young": time.Minute, "a/c/.new-old": 2 * time.Hour, "d/e/.new-old": 2 * time.Hour} {
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(at(name), now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sweep(ctx, now.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{"a/b/1": true, "a/c/2": true, "a/b/.new-young": true, "a/c/.new-old": false, "d": false} {
		if _, err := os.Stat(at(name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A folder is removed with its last object, and made again with the next one.
	for range 2 {
		if err := f.DeleteDurably(ctx, "a/c/2"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(at("a/c")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the empty folder is still there: %v", err)
		}
		if err := f.Put(ctx, "a/c/2", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
}

// Objects are put while others in the same folder are deleted, by this process and by another.
func TestAnEmptyFolderGoesWhileObjectsArePut(t *testing.T) {
	f, ctx := open(t), t.Context()
	other, err := storage.OpenFolder(f.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			key := "a/b/" + strconv.Itoa(i)
			for range 100 {
				put := f.Put
				if i < 2 {
					put = f.PutFresh
				}
				if err := put(ctx, key, []byte("x")); err != nil {
					t.Error(err)
				}
				if err := []*storage.Folder{f, other}[i%2].Delete(ctx, key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
