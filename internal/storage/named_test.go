package storage

import (
	"errors"
	"testing"
)

// Another process deletes the object of a deleted dataset, and its folder, as soon as it is put. Then Put has
// still succeeded.
func TestAnObjectThatIsDeletedAtOnceWasPut(t *testing.T) {
	f, err := OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	const key = "gone/0/a"
	if err := f.put(t.Context(), key, []byte("x"), func(from, to string) error {
		return errors.Join(f.root.Rename(from, to), f.Delete(t.Context(), to))
	}); err != nil {
		t.Error(err)
	}
	if _, err := f.Stat(t.Context(), key); !errors.Is(err, ErrNotFound) {
		t.Errorf("the object is still there: %v", err)
	}
	if err := errors.Join(f.PutFresh(t.Context(), key, []byte("x")), f.Delete(t.Context(), key), f.named(key)); err != nil {
		t.Error(err)
	}
}
