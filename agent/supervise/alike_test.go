package supervise

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

const trace = `Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
    ~~~~^^
ValueError: what went wrong
`

// If ranks fail with the same error, one prints its traceback, and the others name that rank. The
// summary at the end does not repeat a traceback that was printed before.
func TestAnErrorOfSeveralRanksIsPrintedOnce(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		cfg := sh(`echo "about to fail" >&2; cat >&2 <<'EOF'
` + trace + `EOF
exit 3`)
		cfg.NProcPerNode, cfg.Model = n, Shared
		if n > 1 { // a rank ignores SIGTERM, so it still fails by itself after another one has failed
			cfg.Cmd[2] = "trap '' TERM\n" + cfg.Cmd[2]
		}
		err := Run(t.Context(), cfg)
		if err == nil {
			t.Fatal("the run did not fail")
		}
		said := cfg.Out.(*lines).String() + err.Error()
		if got := strings.Count(said, "File \"train.py\""); got != 1 {
			t.Errorf("%d ranks: the traceback is printed %d times, want once:\n%s", n, got, said)
		}
		if strings.Contains(err.Error(), "what went wrong") {
			t.Errorf("%d ranks: the summary repeats the error that is printed above it:\n%s", n, err)
		}
	}
}

func TestATracebackNamesTheRankThatHadItFirst(t *testing.T) {
	said, a := newLines(), &alike{}
	to := &output{w: said, written: &atomic.Int64{}}
	write := func(rank, text string) {
		p := newPrefixed(to, rank, keptLines)
		p.trace = &tracer{alike: a, worker: "rank " + rank}
		for i := range text { // one byte at a time
			if _, err := p.Write([]byte(text[i : i+1])); err != nil {
				t.Fatal(err)
			}
		}
		p.flush()
		if got, want := strings.Join(p.last(), "\n"), strings.TrimSuffix(text, "\n"); got != want {
			t.Errorf("the last lines of rank %s are\n%s\nwant\n%s", rank, got, want)
		}
	}
	write("0", "before\n"+trace)
	write("1", trace+"after\n")
	write("2", strings.Replace(trace, "wrong", "badly", 1))
	write("0", trace) // again, after a restart
	write("3", "Traceback (most recent call last):\n  File \"cut off")
	indented := func(rank, text string) string {
		return "[" + rank + "] " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n["+rank+"] ") + "\n"
	}
	want := indented("0", "before\n"+trace) +
		"[1] the same error as rank 0: ValueError: what went wrong\n[1] after\n" +
		indented("2", strings.Replace(trace, "wrong", "badly", 1)) + indented("0", trace) +
		indented("3", "Traceback (most recent call last):\n  File \"cut off")
	if said.String() != want {
		t.Errorf("printed was\n%swant\n%s", said, want)
	}
	if n := to.written.Load(); n != int64(strings.Count(want, "\n")) {
		t.Errorf("%d lines are counted, want %d", n, strings.Count(want, "\n"))
	}
	for i := range 3 * maxTraces { // only maxTraces errors are remembered
		a.printed(fmt.Sprint(i), "x")
	}
	if len(a.first) > maxTraces {
		t.Errorf("%d errors are remembered, want at most %d", len(a.first), maxTraces)
	}
}
