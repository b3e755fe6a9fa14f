package store

import (
	"os"
	"path/filepath"
	"testing"
)

// An old folder opens, and all of its values are read. TestAJobOfAnOlderFolderGoesOn in package agent tests what the
// core makes of them. The second time, the folder was already opened by this version.
func TestAnOlderFolderOpens(t *testing.T) {
	for name, want := range map[string]int{"shared": 9, "replicated": 16} {
		dir := filepath.Join(t.TempDir(), "store")
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata/older", name))); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			s, n := mustOpen(t, dir, Options{}), 0
			if err := s.Load(func(key, value []byte) error { n++; return nil }); err != nil {
				t.Fatal(err)
			}
			if n != want {
				t.Errorf("%s: %d pairs, want %d", name, n, want)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
