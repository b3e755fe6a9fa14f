//go:build kafka || pulsar || rocketmq

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/headrace/headrace/internal/view"
)

// silence freezes the broker of two datasets, one with an end and one without. For both, status, describe
// and top say since when the broker does not answer. After the thaw they say so no more. part is the
// source's part of a spec, without its closing brace.
func (w *world) silence(part string, freeze, thaw func() error) {
	t := w.t
	t.Helper()
	for name, end := range map[string]string{"bounded": "latest", "live": "never"} {
		w.write(name+".yaml", fmt.Sprintf("name: %s\n%s, end: %s}\nguard: {every: 200ms}\ndecode: lines\n", name, part, end))
	}
	up := w.up("-f", "bounded.yaml", "-f", "live.yaml")
	const says = "the source has not answered since "
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

// breakable is a broker that a test can freeze and kill.
type breakable interface {
	Freeze() error
	Thaw() error
	Kill() error
	Start(context.Context) error
}

// outlives freezes a broker while a trainer reads, for longer than an agent tries to read a lease (30 s).
// status and top say since when the broker does not answer. Later outlives kills the broker while a
// reader waits for its answer. The trainer gets each record once. part is the source's part of a live
// dataset's spec, without its closing brace. add appends 64 batches of records, numbered from first on,
// and returns how many of the source's units they take.
func (w *world) outlives(part string, b breakable, add func(first int) (units int64)) {
	t := w.t
	t.Helper()
	const patience = 45
	records, units := 0, int64(0)
	more := func() {
		t.Helper()
		units += add(records)
		records += 64 * modeBatch
	}
	more()
	w.write("clicks.yaml", strings.Replace(clicksSpec, "files: {root: data}", part+", end: never}", 1))
	up := w.up("-f", "clicks.yaml")
	trainer := w.start("run", "--max-restarts", "0", "--", w.self(""))
	status := func() view.Status { return decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json")) }
	reads := func(when string) {
		t.Helper()
		trainer.until(when, func() bool { return status().Counts.Acked == units })
		if c := status().Counts; c.Listed != units || c.Acked != units {
			t.Errorf("when %s, the counts are %+v, want %d units listed and acked", when, c, units)
		}
	}
	reads("what is there is read")
	if err := b.Freeze(); err != nil {
		t.Fatal(err)
	}
	trainer.until("the silence is longer than the patience", func() bool { s := status().Silence; return s != nil && s.Seconds > patience })
	const says = "the source has not answered since "
	for _, args := range [][]string{{"status", "clicks"}, {"top", "--once"}} {
		if out := w.ok(args...); !strings.Contains(out, says) {
			t.Errorf("%v does not say since when the source does not answer:\n%s", args, out)
		}
	}
	if err := b.Thaw(); err != nil {
		t.Fatal(err)
	}
	more()
	reads("what came after the freeze is read")
	trainer.until("the source answers", func() bool { return status().Silence == nil })
	if s := status(); s.State != "running" {
		t.Errorf("after the freeze the dataset is %+v, want running", s)
	}
	if err := errors.Join(b.Kill(), b.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	more()
	reads("what came after the kill is read")
	trainer.signal(syscall.SIGTERM)
	trainer.wait()
	up.stop()
	w.nothingLeft()
}

// numbered returns n records of clicksSpec with the numbers [first, first+n).
func numbered(first, n int) (values [][]byte) {
	for i := range n {
		values = append(values, fmt.Appendf(nil, "0\t%d\tu", first+i))
	}
	return values
}
