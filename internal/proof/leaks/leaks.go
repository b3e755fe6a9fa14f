// Package leaks finds goroutines that a test has left. goleak itself waits less than half a
// second for goroutines that are ending, and on a busy machine that is not enough.
package leaks

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	// endWithin only ends the wait for goroutines that do not end.
	endWithin = time.Minute
	// stuckLooks is how often the same goroutines must be seen stuck. A look takes 0.8 s or more:
	// goleak looks twice, and waits 0.4 s each time. A timer that is due by then has fired.
	stuckLooks = 10
)

// None fails a test whose goroutines do not end.
func None(t testing.TB, options ...goleak.Option) {
	t.Helper()
	if err := find(endWithin, stuckLooks, options); err != nil {
		t.Error(err)
	}
}

// Main runs the tests of a package and ends the process. It fails if goroutines are left.
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := find(endWithin, stuckLooks, options); err != nil {
			fmt.Fprintln(os.Stderr, "the tests have passed, and goroutines are left:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// find waits until no goroutine is left. It does not wait long if all goroutines are stuck, also
// those that options ignore: no machine is so slow that they only seem to be.
func find(within time.Duration, looks int, options []goleak.Option) error {
	var before []string
	same := 0
	for deadline := time.Now().Add(within); ; {
		err := goleak.Find(options...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		now := stuck(goleak.Find())
		if same++; now == nil || !slices.Equal(now, before) {
			same = 1
		}
		if before = now; now != nil && same >= looks {
			return err
		}
	}
}

// header is how an error of goleak begins to describe a goroutine: its number and state.
var header = regexp.MustCompile(`Goroutine (\d+) in state ([^\n]*), with `)

// stuck returns the goroutines that an error of goleak names, if all of them wait for each other
// or for a timer. It returns none if one of them may run, or waits for something outside of this
// process, such as a connection or a child: a slow machine may make that late.
func stuck(err error) (numbers []string) {
	if err == nil {
		return nil
	}
	for _, g := range header.FindAllStringSubmatch(err.Error(), -1) {
		waits := func(state string) bool { return strings.HasPrefix(g[2], state) }
		if !slices.ContainsFunc([]string{"chan ", "select", "sleep", "sync.", "semacquire"}, waits) {
			return nil
		}
		numbers = append(numbers, g[1])
	}
	slices.Sort(numbers)
	return numbers
}
