//go:build kafka

package kafka

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

// python is a Python with the packages of testdata/requirements.txt. `make test-kafka` names it.
func python() string {
	if p := os.Getenv("HEADRACE_PYTHON"); p != "" {
		return p
	}
	return "../../.venv/bin/python"
}

// txnWriter is a process of testdata/transactions.py.
type txnWriter struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Scanner
}

func startWriter(t *testing.T, addr, topic string) *txnWriter {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // not t.Context(), which ends before the cleanup
	cmd := exec.CommandContext(ctx, python(), "testdata/transactions.py", addr, topic, topic)
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; make test-kafka installs what it needs", err)
	}
	t.Cleanup(func() {
		defer cancel()
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("transactions.py: %v\n%s", err, said.String())
		}
	})
	w := &txnWriter{t: t, in: in, out: bufio.NewScanner(out)}
	w.out.Buffer(nil, 1<<20)
	return w
}

func (w *txnWriter) line() string {
	w.t.Helper()
	if !w.out.Scan() {
		w.t.Fatalf("transactions.py ended: %v", w.out.Err())
	}
	return w.out.Text()
}

func (w *txnWriter) list() []string {
	w.t.Helper()
	var all []string
	if err := json.Unmarshal([]byte(w.line()), &all); err != nil {
		w.t.Fatal(err)
	}
	return all
}

// Records of an aborted transaction are never delivered, and those of an open one are not delivered yet,
// whatever client wrote them and however a range is split.
func TestOnlyCommittedRecordsAreDelivered(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	w := startWriter(t, b.Addr(), topic)
	want := w.list()
	if got := w.line(); got != "open" {
		t.Fatalf("got %v, want %v", got, "open")
	}
	s := openWith(t, options(b, topic), nil)
	defer s.Close()
	if got := texts(everything(t, s)); got != strings.Join(want, " ") {
		t.Fatalf("read\n%s\nwant\n%s", got, strings.Join(want, " "))
	}
	splitsOfCommitted(t, s, want)

	known := segments(t, s)
	if _, err := io.WriteString(w.in, "commit\n"); err != nil {
		t.Fatal(err)
	}
	want = w.list()
	stable(t, s, topic)
	later := openWith(t, options(b, topic), known)
	defer later.Close()
	if got := texts(everything(t, later)); got != strings.Join(want, " ") {
		t.Fatalf("read\n%s\nwant\n%s", got, strings.Join(want, " "))
	}
}

// stable waits until no transaction of partition 0 is open. A commit returns when the coordinator has
// decided, and the leader learns of it later, by a marker.
func stable(t *testing.T, s *Source, topic string) {
	t.Helper()
	p := partition{name: topic}
	for {
		last := asked(t, func() (int64, error) { return s.client.offsetOf(t.Context(), p, atHead, committed) })
		end := asked(t, func() (int64, error) { return s.client.offsetOf(t.Context(), p, atHead, uncommitted) })
		if last == end {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func segments(t *testing.T, s *Source) (all []sources.Segment) {
	t.Helper()
	for _, p := range asked(t, func() ([]sources.PartitionID, error) { return s.Partitions(t.Context()) }) {
		all = append(all, sourcetest.Segments(t, s, p, 10)...)
	}
	return all
}

func splitsOfCommitted(t *testing.T, s *Source, want []string) {
	t.Helper()
	parts, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := segments(t, s)[0]
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		cuts := []int64{g.Start, g.Start + rng.Int64N(g.End-g.Start+1), g.End}
		var all []sourcetest.Got
		for i := range 2 {
			r := sources.Range{Partition: parts[0], Segment: g.ID, Start: cuts[i], End: cuts[i+1]}
			got, err := sourcetest.Read(t.Context(), s, r, sources.Position{Offset: r.Start}, g.Locator)
			if err != nil {
				t.Fatalf("[%d, %d): %v", r.Start, r.End, err)
			}
			all = append(all, got...)
		}
		if got := texts(all); got != strings.Join(want, " ") {
			t.Fatalf("split at %d: %s\nwant\n%s", cuts[1], got, strings.Join(want, " "))
		}
	}
}
