//go:build kafka || pulsar || rocketmq

package main

import (
	"fmt"
	"strings"
)

// silence freezes the broker of two datasets, one with an end and one without, and lets
// it go on: status, describe and top say since when it does not answer, of both, and
// then that it answers. part is the source's part of a spec, up to its end.
func (w *world) silence(part string, freeze, thaw func() error) {
	t := w.t
	t.Helper()
	for name, end := range map[string]string{"bounded": "latest", "live": "never"} {
		w.write(name+".yaml", fmt.Sprintf("name: %s\n%s, end: %s}\nguard: {every: 200ms}\ndecode: lines\n", name, part, end))
	}
	up := w.up("-f", "bounded.yaml", "-f", "live.yaml")
	const says = "the source does not answer since "
	shows := func(silent bool) func() bool {
		return func() bool {
			for _, args := range [][]string{{"status", "bounded"}, {"status", "live"}, {"dataset", "describe", "live"}} {
				if strings.Contains(w.ok(args...), says) != silent {
					return false
				}
			}
			return strings.Count(w.ok("status"), says) == map[bool]int{false: 0, true: 2}[silent]
		}
	}
	up.until("both are listed", func() bool {
		for _, name := range []string{"bounded", "live"} {
			if !strings.Contains(w.ok("status", name), "running") {
				return false
			}
		}
		return shows(false)()
	})
	if err := freeze(); err != nil {
		t.Fatal(err)
	}
	up.until("the silence is told", shows(true))
	if err := thaw(); err != nil {
		t.Fatal(err)
	}
	up.until("it answers", shows(false))
	up.stop()
}
