package storage_test

import (
	"os"
	"path/filepath"
	"testing"

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
