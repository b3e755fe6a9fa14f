package stepfile_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/headrace/headrace/agent/stepfile"
	"golang.org/x/sys/unix"
)

const someFile = "3df79bbb43b78871-1"

func opened(t *testing.T, socket string) *stepfile.Folder {
	t.Helper()
	f, err := stepfile.Open(socket, "a")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func there(path string) bool { _, err := os.Lstat(path); return err == nil }

// Agents that were killed leave folders. The next agent on the machine removes the empty ones, and
// those whose processes ended a day ago. Nobody can need these.
func TestWhatAgentsLeftThatNeverCameAgainIsSwept(t *testing.T) {
	t.Setenv(stepfile.RootVariable, t.TempDir())
	dayAgo := time.Now().Add(-25 * time.Hour)
	// left makes the folder of an agent that was killed, with a step file or without.
	left := func(name string, written *time.Time) (folder, file string) {
		f := opened(t, name)
		file = filepath.Join(f.Path, someFile)
		if written != nil {
			if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(file, *written, *written); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
		if written == nil {
			if err := os.Mkdir(f.Path, 0o700); err != nil { // Close has removed it; a killed agent does not call Close
				t.Fatal(err)
			}
		}
		return f.Path, file
	}
	now := time.Now()
	empty, _ := left("/run/empty", nil)
	fresh, _ := left("/run/fresh", &now)
	old, _ := left("/run/old", &dayAgo)
	foreign, _ := left("/run/foreign", nil)
	if err := os.WriteFile(filepath.Join(foreign, "notes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	alive := opened(t, "/run/alive")
	defer alive.Close()
	writing, file := left("/run/writing", &dayAgo) // its trainer lives and has the lock
	defer locks(t, file)()

	us := opened(t, "/run/us")
	defer us.Close()
	for range 2 {
		if err := us.Sweep(); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]bool{empty: false, old: false, fresh: true, foreign: true, alive.Path: true, writing: true, us.Path: true} {
		if there(path) != want {
			t.Errorf("%s is there: %v, want %v", path, !want, want)
		}
	}
	if !there(filepath.Join(fresh, someFile)) {
		t.Error("a fresh step file was removed")
	}
}

// An agent that stops still waits for its connections when the next one of its name has opened the same folder.
func TestAnAgentThatStopsLeavesTheFolderToTheNextOne(t *testing.T) {
	t.Setenv(stepfile.RootVariable, t.TempDir())
	old, next := opened(t, "/run/us"), opened(t, "/run/us")
	old.Close()
	if _, err := next.List(); err != nil {
		t.Errorf("the folder of the agent that lives: %v", err)
	}
	next.Close()
	if there(next.Path) {
		t.Error("the last agent left its empty folder")
	}
}

// Agents of one name come and go. Each has its folder as long as it lives.
func TestAFolderIsThereWhileAnyAgentHasIt(t *testing.T) {
	t.Setenv(stepfile.RootVariable, t.TempDir())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 500 {
				f, err := stepfile.Open("/run/us", "a")
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := f.List(); err != nil {
					t.Error(err)
				}
				f.Close()
			}
		})
	}
	all.Wait()
}

// If the folder of an agent is swept while the agent opens it, the agent makes it again.
func TestAFolderThatIsSweptWhileItIsOpenedIsMadeAgain(t *testing.T) {
	t.Setenv(stepfile.RootVariable, t.TempDir())
	other := opened(t, "/run/other")
	defer other.Close()
	done := make(chan error)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
				if err := other.Sweep(); err != nil {
					done <- err
					return
				}
			}
		}
	}()
	for range 500 {
		f := opened(t, "/run/us")
		if !there(f.Path) {
			t.Fatalf("the folder %s of an agent that has opened it is not there", f.Path)
		}
		f.Close()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// locks lets another process hold the lock of a file, as a trainer does. end ends that process. A
// process is not blocked by its own locks, so another one is needed.
func locks(t *testing.T, path string) (end func()) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock); err != nil { // the lock belongs to this open file, not to the process
		t.Fatal(err)
	}
	return func() { _ = file.Close() }
}
