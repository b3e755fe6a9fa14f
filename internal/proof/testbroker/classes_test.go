package testbroker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The file is made once for each JVM. Where a JVM makes none, or the broker that should write it
// failed, brokers start without, and nobody tries again. Who was interrupted leaves it to the next.
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
	get := func(ctx context.Context, example func(file string) error) (classes, error) {
		return software{name: "Kafka"}.classes(ctx, lib, func(_ context.Context, c classes) error {
			if tried++; !slices.Equal(c.options(), []string{"-XX:ArchiveClassesAtExit=" + c.file}) || c.read().options() != nil {
				t.Errorf("%+v", c)
			}
			return example(c.file)
		})
	}
	writes := func(file string) error { return os.WriteFile(file, []byte("classes"), 0o644) }
	writesNone := func(string) error { return nil }

	java("#!/bin/sh\n")
	interrupted, interrupt := context.WithCancel(t.Context())
	_, err := get(interrupted, func(file string) error {
		interrupt()
		return errors.Join(writes(file), interrupted.Err())
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("of one who was interrupted: %v", err)
	}
	for range 2 {
		if c, err := get(t.Context(), writes); err != nil || !slices.Contains(c.options(), "-XX:SharedArchiveFile="+c.file) || c.read() != c || tried != 2 {
			t.Errorf("after %d tries: %+v, %v", tried, c, err)
		}
	}
	java("#!/bin/sh\n# another\n")
	for range 2 {
		if c, err := get(t.Context(), writesNone); err != nil || c.options() != nil || tried != 3 {
			t.Errorf("after %d tries: %+v, %v", tried, c, err)
		}
	}
	java("#!/bin/sh\n# a third\n")
	for range 2 {
		c, err := get(t.Context(), func(file string) error { return errors.Join(writes(file), errors.New("it does not start")) })
		if err != nil || c.options() != nil || tried != 4 {
			t.Errorf("after %d tries: %+v, %v", tried, c, err)
		}
	}
}
