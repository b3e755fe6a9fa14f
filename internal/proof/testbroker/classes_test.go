package testbroker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The file is made once for each JVM. If a JVM makes none, no later start tries again. If the broker
// that should write it fails, or the cache cannot be written, brokers start without it.
func TestTheFileOfClassesIsMadeOnce(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	java := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, "java"), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	lib := filepath.Join(t.TempDir(), "lib")
	tried := 0
	get := func(lib string, example func(file string) error) classes {
		return classesFor(t.Context(), lib, func(_ context.Context, c classes) error {
			if tried++; !slices.Equal(c.options(), []string{anyJVM, "-XX:ArchiveClassesAtExit=" + c.file}) || c.read().options() != nil {
				t.Errorf("%+v", c)
			}
			return example(c.file)
		})
	}
	writes := func(file string) error { return os.WriteFile(file, []byte("classes"), 0o644) }
	writesNone := func(string) error { return nil }

	java("#!/bin/sh\n")
	if c := get(filepath.Join(t.TempDir(), "no folder", "lib"), writes); c.options() != nil || tried != 0 {
		t.Errorf("the cache folder cannot be made: %d tries and %+v, want no try and no options", tried, c)
	}
	c := get(lib, func(file string) error { return errors.Join(writes(file), errors.New("it does not start")) })
	if c.options() != nil || tried != 1 {
		t.Errorf("the broker that writes the file failed: %d tries and %+v, want one try and no options", tried, c)
	}
	for range 2 {
		if c := get(lib, writes); !slices.Contains(c.options(), "-XX:SharedArchiveFile="+c.file) || c.read() != c || tried != 2 {
			t.Errorf("after %d tries: %+v", tried, c)
		}
	}
	java("#!/bin/sh\n# another\n")
	for range 2 {
		if c := get(lib, writesNone); c.options() != nil || tried != 3 {
			t.Errorf("after %d tries: %+v", tried, c)
		}
	}
}

// Another process has locked the cache. Waiting for it can be interrupted.
func TestWhoWaitsForTheCacheCanBeInterrupted(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	waiting, interrupt := context.WithCancel(t.Context())
	interrupt()
	if _, err := lock(waiting, name); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a lock that another process has, with a context that ended: %v", err)
	}
	unlock()
	if unlock, err = lock(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	unlock()
}
