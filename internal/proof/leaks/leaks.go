// Package leaks finds goroutines that a test has left. goleak itself waits less than half a
// second for goroutines that are ending, and on a busy machine that is not enough.
package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// endWithin only ends the wait for goroutines that do not end.
const endWithin = time.Minute

// None fails a test whose goroutines do not end.
func None(t testing.TB, options ...goleak.Option) {
	t.Helper()
	if err := find(endWithin, options); err != nil {
		t.Error(err)
	}
}

// Main runs the tests of a package and ends the process. It fails if goroutines are left.
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := find(endWithin, options); err != nil {
			fmt.Fprintln(os.Stderr, "the tests have passed, and goroutines are left:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// find waits until no goroutine is left.
func find(within time.Duration, options []goleak.Option) error {
	for deadline := time.Now().Add(within); ; {
		err := goleak.Find(options...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
