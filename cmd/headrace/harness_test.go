package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/link"
)

// The tests run the real binary, built once, in folders of their own.
var binary string

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// atEnd is called after the last test. It closes the brokers that tests share.
var atEnd []func() error

func TestMain(m *testing.M) {
	if os.Getenv(trainerVariable) != "" {
		os.Exit(trainer())
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	flag.Parse()
	if signal.Ignored(os.Interrupt) { // as for a shell's background job: the processes that the tests start would inherit this
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	dir, err := os.MkdirTemp("", "hr")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "headrace")
	build := exec.Command("go", "build", "-ldflags", "-s -w -X main.version=0.1.0-test", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	for _, end := range atEnd {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// world is the machine of one user: the folders and the environment. Its paths are short,
// because a socket's path may not be long, and the sockets are in these folders.
type world struct {
	t   *testing.T
	dir string
	env []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "hr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{t: t, dir: dir}
	for _, sub := range []string{"state", "run", "home"} {
		if err := os.Mkdir(w.path(sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.path("home"), "XDG_STATE_HOME=" + w.path("state"), "XDG_RUNTIME_DIR=" + w.path("run"),
		"HEADRACE_SESSION_TTL=60s"} // much longer than the default: a busy machine may stand still for 20 s
	return w
}

func (w *world) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

func (w *world) write(name, text string) string {
	w.t.Helper()
	path := w.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// clicks writes a small input of n records, and its spec.
func (w *world) clicks(n int) {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d\t%d\tuser-%d\n", i%2, i, i%7)
	}
	w.write("data/a.tsv", b.String())
	w.write("clicks.yaml", clicksSpec)
}

const clicksSpec = `name: clicks
files: {root: data}
decode:
  format: tsv
  columns:
    - {name: label, path: 0, dtype: float32}
    - {name: number, path: 1, dtype: int64}
    - {name: user, path: 2, dtype: string}
`

type result struct {
	code     int
	out, err string
}

// long is a deadline: nothing here takes as long, not even on a busy machine. Pulsar may need a minute for
// a topic, and another one if that fails.
const long = 5 * time.Minute

func (w *world) run(args ...string) result {
	w.t.Helper()
	p := w.start(args...)
	return p.wait()
}

// ok runs the binary, fails the test unless it exits with 0, and returns its output. A verb waits 15 s for
// its master. A busy machine may stand still for longer, so ok tries again if no master has answered.
func (w *world) ok(args ...string) string {
	w.t.Helper()
	r := w.run(args...)
	for tries := 0; r.code == exitUnreachable && tries < 5; tries++ {
		r = w.run(args...)
	}
	if r.code != 0 {
		w.t.Fatalf("headrace %s: exit code %d, want 0\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// proc is a running binary.
type proc struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err *output
	done     chan struct{}
}

func (w *world) start(args ...string) *proc {
	w.t.Helper()
	return w.startProgram(binary, args...)
}

func (w *world) startProgram(program string, args ...string) *proc {
	w.t.Helper()
	p := &proc{t: w.t, cmd: exec.Command(program, args...), out: &output{}, err: &output{}, done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = w.dir, w.env
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = time.Minute
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	w.t.Cleanup(func() {
		p.kill()
		if text := p.err.String(); w.t.Failed() && text != "" { // what the others wrote tells why one of them waited
			w.t.Logf("%v wrote:\n%s", p.cmd.Args, text[max(0, len(text)-4000):])
		}
	})
	return p
}

func (p *proc) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *proc) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

func (p *proc) wait() result {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(long):
		p.signal(syscall.SIGQUIT)
		<-p.done
		p.t.Fatalf("%v did not end in %v\n%s%s", p.cmd.Args, long, p.out, p.err)
	}
	return result{p.cmd.ProcessState.ExitCode(), p.out.String(), p.err.String()}
}

// stop ends a process gracefully and expects exit code 0.
func (p *proc) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if r := p.wait(); r.code != 0 {
		p.t.Fatalf("%v: exit code %d after SIGTERM, want 0\n%s%s", p.cmd.Args, r.code, r.out, r.err)
	}
}

// output is a buffer that can be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// until checks ok again and again until it is true. It fails the test if p ends before that or if
// it takes too long. When a check takes long, because it runs the binary, the pause after it is
// longer too: this leaves most of the machine to the processes under test.
func (p *proc) until(what string, ok func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), long)
	defer cancel()
	for {
		asked := time.Now()
		if ok() {
			return
		}
		pause := min(max(10*time.Millisecond, 4*time.Since(asked)), 200*time.Millisecond)
		select {
		case <-p.done:
			p.t.Fatalf("waiting for %q: %v has ended, exit code %d\n%s%s", what, p.cmd.Args, p.cmd.ProcessState.ExitCode(), p.out, p.err)
		case <-ctx.Done():
			p.t.Fatalf("waiting for %q: it has not come in %v; %v says\n%s%s", what, long, p.cmd.Args, p.out, p.err)
		case <-time.After(pause):
		}
	}
}

// master starts a master on any free port and waits until it can be found.
func (w *world) master(args ...string) *proc {
	w.t.Helper()
	p := w.start(append([]string{"master", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--allow-root", w.dir}, args...)...)
	p.until("address", w.masterThere)
	return p
}

// up starts a master and an agent in one process and waits until trainers can connect.
func (w *world) up(args ...string) *proc {
	w.t.Helper()
	p := w.start(append([]string{"up"}, args...)...)
	p.until("trainers can come", func() bool { return strings.Contains(p.err.String(), "trainers can come") })
	return p
}

func (w *world) state() string { return w.path("state", "headrace", "default") }

func (w *world) socket() string { return w.path("run", "headrace", "default.sock") }

func (w *world) masterThere() bool {
	_, err := link.ReadAddress(w.state())
	return err == nil
}

// nothingLeft fails the test if a process has left a socket, an address file or a lock file, or is still running.
func (w *world) nothingLeft() {
	w.t.Helper()
	for _, path := range []string{w.socket(), filepath.Join(w.state(), link.AddressFile)} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			w.t.Errorf("%s is still there after all processes were stopped (%v)", path, err)
		}
	}
	out, _ := exec.Command("pgrep", "-f", w.dir).Output()
	if len(bytes.TrimSpace(out)) > 0 {
		ps, _ := exec.Command("ps", "-o", "pid,ppid,stat,args", "-p", strings.Join(strings.Fields(string(out)), ",")).Output()
		w.t.Errorf("these processes are still running:\n%s", ps)
	}
}

func decoded[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	dec := json.NewDecoder(strings.NewReader(text))
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// golden compares text with the file testdata/name. With -rewrite it writes the file instead.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs; if the change is intended, run go test ./cmd/headrace -rewrite\n got:\n%s\nwant:\n%s", path, text, want)
	}
}
