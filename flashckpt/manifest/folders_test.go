package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// deep is a folder of checkpoints whose parent folders do not exist yet.
const deep = checkpoints + "/new/a/b/c"

func TestPowerLossAtEveryCallForgetsNoFolderOfACheckpointThatIsDone(t *testing.T) {
	eachCut(t,
		func(FS) error { return nil },
		func(on FS) error { return saveIn(on, deep, 130) },
		func(what string, on FS, done bool) {
			if got := fmt.Sprint(stepsIn(t, what, on, deep)); got != "[130]" && (done || got != "[]") {
				t.Fatalf("%s: the checkpoints are those of the steps %s; the save succeeded: %v", what, got, done)
			}
		})
}

// A killed process has made folders without syncing them. The next process finds the folders, so it
// makes none. It still must sync them.
func TestFoldersThatAKilledProcessMadeAreDurableWithTheNextCheckpoint(t *testing.T) {
	for at := 1; ; at++ {
		mem := vfs.NewCrashableMem()
		if err := errors.Join(mem.MkdirAll(checkpoints, 0o777), memory{mem}.SyncDir("/")); err != nil {
			t.Fatal(err)
		}
		calls, cut := 0, (*vfs.MemFS)(nil)
		killed := saveIn(failing(mem, at, vfs.CrashCloneCfg{}, &calls, &cut), deep, 100)
		if err := saveIn(memory{mem}, deep, 130); err != nil {
			t.Fatal(err)
		}
		what := fmt.Sprintf("killed at writing call %d", at)
		if got := stepsIn(t, what, memory{mem.CrashClone(vfs.CrashCloneCfg{})}, deep); len(got) == 0 || got[0] != 130 {
			t.Fatalf("%s: the checkpoints are those of the steps %v", what, got)
		}
		if killed == nil {
			return
		}
	}
}

// refusing is a disk with folders that this user may not open, so it cannot sync them.
type refusing struct {
	FS
	folder string
}

func (r refusing) SyncDir(folder string) error {
	if folder == r.folder {
		return &fs.PathError{Op: "open", Path: folder, Err: fs.ErrPermission}
	}
	return r.FS.SyncDir(folder)
}

func TestAFolderAboveThatThisUserMayNotOpenHindersNoSave(t *testing.T) {
	for folder, want := range map[string]error{"/": nil, checkpoints: fs.ErrPermission} {
		mem := vfs.NewCrashableMem()
		if err := mem.MkdirAll(checkpoints, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := saveIn(refusing{memory{mem}, folder}, deep, 130); !errors.Is(err, want) {
			t.Errorf("folder %s cannot be opened, and the save got %v, want %v: folders made in it would not be durable", folder, err, want)
		}
	}
}
