package master

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAMasterEndsWhenItsStateFolderIsRemovedOrReplaced(t *testing.T) {
	for what, wreck := range map[string]func(state string) error{
		"was removed": os.RemoveAll,
		"was replaced by another one": func(state string) error { // in one step: the master may look at any moment
			aside := filepath.Join(state, "aside")
			if err := os.Mkdir(aside, 0o700); err != nil {
				return err
			}
			return unix.Renameat2(unix.AT_FDCWD, filepath.Join(state, storeFolder), unix.AT_FDCWD, aside, unix.RENAME_EXCHANGE)
		},
	} {
		state := filepath.Join(t.TempDir(), "state")
		m := start(t, Config{State: state, OpenSource: newRiver(1).open})
		if err := wreck(state); err != nil {
			t.Fatal(err)
		}
		err := m.ends()
		if err == nil || !strings.Contains(err.Error(), state) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "newest checkpoint") {
			t.Errorf("the state folder %s, and the master ended with %v", what, err)
		}
	}
}

// ends waits until the master has ended by itself.
func (r *running) ends() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		r.done <- nil // stop reads it
		return err
	case <-time.After(time.Minute):
		r.t.Fatal("the master did not end in time")
		return nil
	}
}
