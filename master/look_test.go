package master

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/shardsvc/cut"
)

func TestLookingForAManifestTellsThereNotThereAndNotToBeSeenApart(t *testing.T) {
	dir := t.TempDir()
	created := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	m := &manifest.Manifest{Job: "j", Model: "replicated", Step: 5, WorldSize: 1, Created: created,
		Cut: cut.Cut{Version: cut.Version, ID: 7, Job: "j", Model: "replicated", Rank: cut.Group, Step: 5, WorldSize: 1, Exact: true}}
	folder, err := manifest.Begin(manifest.OS{}, dir, manifest.Folder(5, nil, 7))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, manifest.FileName)
	check := func(what, path string, id cut.ID, want, seen bool) {
		t.Helper()
		found, when, err := lookOn(manifest.OS{}, path, id)
		if found != want || (err == nil) != seen {
			t.Errorf("%s: found %v, %v", what, found, err)
		}
		if found && !when.Equal(created) {
			t.Errorf("%s: the manifest was made at %v", what, when)
		}
	}
	check("not written", path, 7, false, true)
	check("no folder yet", filepath.Join(dir, "step-5-x", manifest.FileName), 7, false, true)
	check("a storage that is not here", "/nowhere/at/all/step-5/"+manifest.FileName, 7, false, false)
	check("a path of another machine", "ckpt/"+manifest.FileName, 7, false, false)
	if err := manifest.WriteManifest(manifest.OS{}, path, m); err != nil {
		t.Fatal(err)
	}
	check("written", path, 7, true, true)
	check("of another cut", path, 8, false, true)
	if err := os.Truncate(path, 50); err != nil {
		t.Fatal(err)
	}
	check("damaged", path, 7, false, true)
	if err := os.Chmod(folder, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(folder, 0o700) })
	if os.Getuid() != 0 { // root can read it
		check("not to be read", path, 7, false, false)
	}
}

// synced notes which folders were synced. Each sync returns err.
type synced struct {
	manifest.OS
	folders []string
	err     error
}

func (s *synced) SyncDir(folder string) error {
	s.folders = append(s.folders, folder)
	return s.err
}

// Guarantee 3: what was answered survives power loss. The master may bind a checkpoint because it has
// found the manifest. The writer may have died between the rename and the fsync of the folder. So the
// master syncs the folder first.
func TestAManifestThatIsFoundIsThereAfterAPowerFailure(t *testing.T) {
	m := &manifest.Manifest{Job: "j", Model: "private", Step: 5, WorldSize: 1, Rank: new(uint32), Created: time.Unix(1, 0).UTC(),
		Cut: cut.Cut{Version: cut.Version, ID: 7, Job: "j", Model: "private", Rank: 0, Step: 5, WorldSize: 1, Exact: true}}
	folder, err := manifest.Begin(manifest.OS{}, t.TempDir(), manifest.Folder(5, m.Rank, 7))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, manifest.FileName)
	if err := manifest.WriteManifest(manifest.OS{}, path, m); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err         error
		found, seen bool
	}{{nil, true, true}, {syscall.EIO, false, false}, {syscall.EROFS, true, true}} {
		on := &synced{err: c.err}
		found, _, err := lookOn(on, path, 7)
		if found != c.found || (err == nil) != c.seen || len(on.folders) != 1 || on.folders[0] != folder {
			t.Errorf("the sync returned %v: found is %v (%v), synced were %v", c.err, found, err, on.folders)
		}
	}
}
