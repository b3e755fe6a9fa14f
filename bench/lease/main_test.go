package main

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// The benchmark starts its own program as the master. In this test that is the test program.
func TestMain(m *testing.M) {
	if dir := os.Getenv(serverEnv); dir != "" {
		if err := serveIn(dir); err != nil {
			fmt.Fprintln(os.Stderr, "master:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// This test compares no figure: bench itself fails unless the master settled what it answered.
func TestTheSmallestRunEndsWell(t *testing.T) {
	for _, mode := range []string{"batched", "single_1"} {
		if err := bench(t.TempDir(), "", mode, 1, 50*time.Millisecond); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
	}
}

// The figure is printed beside the others, so that a reader can tell a fast disk from a fast master.
func TestTheDisksOwnFsyncIsMeasured(t *testing.T) {
	took, err := fsyncTime(t.TempDir())
	if err != nil || took <= 0 {
		t.Errorf("%v, %v", took, err)
	}
}
