package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/headrace/headrace/flashckpt/manifest"
)

// writeShard writes a slot with a rank's part of a checkpoint of two ranks.
func writeShard(t *testing.T, root, dir string, rank uint32, step int64) (slot, path string) {
	t.Helper()
	return writeSlotAs(t, root, dir, rank, step, tensors(5000+int(rank)), func(a *About) {
		a.Shard, a.Manifest.WorldSize, a.Manifest.Cut.WorldSize = true, 2, 2
		a.Manifest.State = json.RawMessage(fmt.Sprintf(`{"format":"headrace-python-state","version":1,"tree":{"dict":[]},"file":"state-rank-%d.safetensors"}`, rank))
	})
}

func TestOfAShardedCheckpointAllPartsGoToStorageOrNone(t *testing.T) {
	root, dir := t.TempDir(), filepath.Join(t.TempDir(), "ckpt")
	writeShard(t, root, dir, 0, 1)
	_, path := writeShard(t, root, dir, 0, 2)
	writeShard(t, root, dir, 1, 2)
	_, half := writeShard(t, root, dir, 1, 3) // rank 0 was killed before its copy of step 3 was whole
	saved, err := PersistNewest(t.Context(), func(string) manifest.FS { return manifest.OS{} }, root, Left{Job: "default", Run: "r"})
	if err != nil || len(saved) != 1 || saved[0].Err != nil || saved[0].Checkpoint.About.Path != path {
		t.Fatalf("%+v, %v", saved, err)
	}
	m, err := manifest.Load(manifest.OS{}, path)
	if err != nil {
		t.Fatal(err)
	}
	if faults, err := manifest.Verify(t.Context(), manifest.Dir(path), m, manifest.Verifying{}); err != nil || len(faults) != 0 {
		t.Error(faults, err)
	}
	var state struct {
		Shards map[string]struct{ File string }
	}
	if err := json.Unmarshal(m.State, &state); err != nil || state.Shards["0"].File != "state-rank-0.safetensors" || state.Shards["1"].File != "state-rank-1.safetensors" {
		t.Errorf("%s, %v", m.State, err)
	}
	if len(m.Files) != 2 || *m.Files[0].Rank != 0 || *m.Files[1].Rank != 1 || m.Files[1].Size != int64(len(tensors(5001))) {
		t.Errorf("%+v", m.Files)
	}
	if _, err := os.Stat(half); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a single part became a checkpoint")
	}
	saved, err = PersistNewest(t.Context(), func(string) manifest.FS { return manifest.OS{} }, root, Left{Job: "default", Run: "r"})
	if err != nil || len(saved) != 0 {
		t.Errorf("a second call has written %+v (%v), want none", saved, err)
	}
}
