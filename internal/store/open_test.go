package store

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/headrace/headrace/internal/proof/leaks"
	"github.com/headrace/headrace/shardsvc"
	"go.uber.org/goleak"
)

// childEnv tells this test binary, when it starts itself, to be another master.
const childEnv = "HEADRACE_STORE_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		os.Exit(child(what))
	}
	os.Exit(m.Run())
}

func child(what string) int {
	verb, dir, _ := strings.Cut(what, ":")
	switch verb {
	case "open":
		s, err := Open(dir, Options{})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("opened", s.Close())
		return 0
	case "fill":
		return fill(dir)
	case "tmpfs":
		return fillTmpfs(dir)
	}
	fmt.Println("unknown verb", verb)
	return 2
}

func start(what string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	return cmd
}

func mustOpen(t *testing.T, dir string, o Options) *Pebble {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestACleanCloseLeavesNoGoroutineAndAllData(t *testing.T) {
	defer leaks.None(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	for i := 1; i <= 30; i++ {
		if err := s.Commit(workload(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("commit after close: %v", err)
	}
	s = mustOpen(t, dir, Options{})
	n := 0
	if err := s.Load(func(k, v []byte) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	if want := len(after(30)); n != want {
		t.Fatalf("%d keys, want %d", n, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestASecondMasterIsToldWhoHasTheFolder(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	want := []string{dir, "another master runs", fmt.Sprintf("pid %d", os.Getpid())}

	out, err := start("open:" + dir).CombinedOutput()
	if err == nil {
		t.Fatalf("two masters on one folder: %s", out)
	}
	for _, w := range want {
		if !strings.Contains(string(out), w) {
			t.Errorf("another process got the error %q, which must contain %q", out, w)
		}
	}

	_, err = Open(dir, Options{})
	if l, ok := errors.AsType[*Locked](err); !ok || l.Dir != dir {
		t.Fatalf("opening the folder again in this process: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := start("open:" + dir).CombinedOutput(); err != nil {
		t.Fatalf("after close: %v: %s", err, out)
	}
}

func TestStateOfANewerVersionIsRefused(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, "state", Options{FS: mem})
	if err := s.Commit([]shardsvc.Put{{Op: shardsvc.Set, Key: []byte(formatKey), Value: []byte("7")}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Open("state", Options{FS: mem})
	if n, ok := errors.AsType[*Newer](err); !ok || n.Found != 7 || n.Know != Format || n.Dir != "state" {
		t.Fatalf("newer state: %v", err)
	}
	if _, err = Open("state", Options{FS: mem}); err == nil || strings.Contains(err.Error(), "another master") {
		t.Fatalf("the refusal kept the lock: %v", err)
	}
}

func TestAFolderOfANewerPebbleIsRefused(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, "state", Options{FS: mem})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := mem.List("state")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasPrefix(n, "marker.format-version.") {
			f, err := mem.Create("state/marker.format-version.999999.900", vfs.WriteCategoryUnspecified)
			if err := errors.Join(err, f.Close(), mem.Remove("state/"+n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err = Open("state", Options{FS: mem})
	if n, ok := errors.AsType[*Newer](err); !ok || n.Found != 900 || n.Know != int(pebble.FormatNewest) {
		t.Fatalf("newer pebble: %v", err)
	}
}

func TestAFolderThatCanNotBeMadeIsAClearError(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(file+"/state", Options{})
	if e, ok := errors.AsType[*Error](err); !ok || e.Dir != file+"/state" || !errors.Is(err, syscall.ENOTDIR) {
		t.Fatalf("got %v", err)
	}
}

func TestADiskThatIsFullInACommitEndsTheStore(t *testing.T) {
	full := false
	mem := vfs.NewMem()
	s := mustOpen(t, "state", Options{FS: failing(mem, func(op errorfs.Op) error {
		if full && op.Kind == errorfs.OpFileWrite {
			return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
		}
		return nil
	})})
	if err := s.Commit(workload(1)); err != nil {
		t.Fatal(err)
	}
	full = true
	err := s.Commit(workload(2))
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "state folder state: disk full") {
		t.Fatalf("full disk: %v", err)
	}
	full = false
	if again := s.Commit(workload(3)); again != err {
		t.Fatalf("after its failure the store returned %v for another commit", again)
	}
	if cerr := s.Close(); cerr != err {
		t.Fatalf("close after failure: %v", cerr)
	}
}
