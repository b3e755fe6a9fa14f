package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/headrace/headrace/agent"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/internal/proof/leaks"
	"github.com/headrace/headrace/internal/proof/toymaster"
)

func TestMain(m *testing.M) {
	if os.Getenv("HEADRACE_TEST_TRAINER") != "" {
		os.Exit(runTrainer())
	}
	leaks.Main(m)
}

// deadline bounds every wait of a test.
func deadline(*testing.T) <-chan time.Time { return time.After(patience) }

const lines = `
name: lines
files: {root: %s}
decode:
  format: tsv
  columns:
    - {name: id, path: "0", dtype: int64}
    - {name: word, path: "1", dtype: string}
`

// input writes n records in files of at most perFile records. begins has the number of the record at each (segment, offset).
func input(t *testing.T, n, perFile int) (root string, begins map[[2]int64]int) {
	t.Helper()
	root = t.TempDir()
	begins = map[[2]int64]int{}
	var b strings.Builder
	file := int64(0)
	flush := func() {
		name := filepath.Join(root, fmt.Sprintf("part-%03d.tsv", file))
		if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		b.Reset()
		file++
	}
	for i := range n {
		begins[[2]int64{file, int64(b.Len())}] = i
		fmt.Fprintf(&b, "%d\tword-%d\n", i, i*7919%1000)
		if (i+1)%perFile == 0 {
			flush()
		}
	}
	if b.Len() > 0 {
		flush()
	}
	return root, begins
}

// running is an agent that runs until the test (or stop) ends it.
type running struct {
	socket string
	stop   func() error
}

func start(t *testing.T, m *master, socket string, change func(*agent.Config)) *running {
	t.Helper()
	conn := m.conn()
	cfg := agent.Config{Name: "node", Conn: conn, Socket: socket, Open: m.open, Logger: logger(t), Version: "test", ShareFrom: 1}
	if change != nil {
		change(&cfg)
	}
	return startWith(t, conn, cfg)
}

// startWith also closes conn at the end.
func startWith(t *testing.T, conn *grpc.ClientConn, cfg agent.Config) *running {
	t.Helper()
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		err := <-ended
		_ = conn.Close()
		return err
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("agent: %v", err)
		}
	})
	select {
	case <-a.Ready():
	case err := <-ended:
		ended <- err
		t.Fatalf("the agent ended: %v", err)
	case <-deadline(t):
		t.Fatal("the agent was not ready in time")
	}
	return &running{socket: cfg.Socket, stop: stop}
}

func socketIn(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "a.sock")
}

// ownPort returns an address on loopback that stays the test's own. Otherwise the system could give the
// port to another process while a master that is started again does not listen. A socket that is bound to
// the port, and does not listen, keeps it.
func ownPort(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	check(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)) // net.Listen sets it too, so both may have the port
	check(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at := must(unix.Getsockname(fd))(t)
	return fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// drainStream steps every batch of s to the end of data and counts its rows.
func drainStream(t *testing.T, s *stream, rows int, begins map[[2]int64]int, seen map[int]int) (short int) {
	t.Helper()
	step := int64(s.through)
	for {
		b, err := s.next(0)
		if err == errEnd {
			return short
		}
		check(t, err)
		if len(b.offsets) == 0 || len(b.offsets) > rows {
			t.Fatalf("batch %d has %d rows, want %d", b.number, len(b.offsets), rows)
		}
		if len(b.offsets) < rows {
			short++
		}
		for i, at := range b.offsets {
			id, ok := begins[[2]int64{b.segment[i], at}]
			if !ok {
				t.Fatalf("no record begins at %d of segment %d", at, b.segment[i])
			}
			seen[id]++
		}
		step++
		check(t, s.step(step, 1))
		check(t, s.credit(1))
	}
}

func TestBatchesHaveExactlyTheAskedRowsAcrossShardsAndFiles(t *testing.T) {
	for _, rows := range []int{1, 7, 100, 1000} {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			root, begins := input(t, 5000, 777)
			m := newMaster(t, "shared", fmt.Sprintf(lines, root), root)
			a := start(t, m, socketIn(t), nil)
			tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
			s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: uint32(rows), Track: true}))(t)
			check(t, s.credit(4))
			seen := map[int]int{}
			short := drainStream(t, s, rows, begins, seen)
			want := 0
			if 5000%rows != 0 {
				want = 1
			}
			if short != want {
				t.Errorf("%d batches are short, want %d", short, want)
			}
			for i := range 5000 {
				if seen[i] != 1 {
					t.Fatalf("record %d came %d times, want once", i, seen[i])
				}
			}
			check(t, s.acked(s.through))
			s.close()
			tr.bye()
			m.until("everything settled", func(toy *toymaster.Master) bool { return toy.Done() })
		})
	}
}
