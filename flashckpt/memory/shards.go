package memory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/shardsvc/cut"
)

// wholeShards gives the parts of the newest sharded checkpoint whose parts are all among
// held, by rank; nil: there is none.
func wholeShards(held []Held, run string) []Held {
	byCut := map[cut.ID][]Held{}
	for _, h := range held {
		if h.About.Shard && h.About.Run == run {
			id := h.About.Manifest.Cut.ID
			byCut[id] = append(byCut[id], h)
		}
	}
	var best []Held
	for _, parts := range byCut {
		slices.SortFunc(parts, func(a, b Held) int { return cmp.Compare(a.About.Rank, b.About.Rank) })
		parts = slices.CompactFunc(parts, func(a, b Held) bool { return a.About.Rank == b.About.Rank })
		m := &parts[0].About.Manifest
		if len(parts) == int(m.WorldSize) && parts[len(parts)-1].About.Rank == m.WorldSize-1 &&
			(best == nil || m.Cut.Order > best[0].About.Manifest.Cut.Order) {
			best = parts
		}
	}
	return best
}

// persistShards writes the parts of all ranks to storage, and the manifest last. Nobody else
// writes them: the trainers have ended.
func persistShards(ctx context.Context, on manifest.FS, parts []Held) error {
	m := parts[0].About.Manifest
	at := parts[0].About.Path
	folder := manifest.Dir(at)
	if want := manifest.Folder(m.Step, m.Rank, m.Cut.ID); filepath.Base(folder) != want || filepath.Base(at) != manifest.FileName {
		return fmt.Errorf("%s: its path %s is not %s in a folder %s", parts[0].Slot, at, manifest.FileName, want)
	}
	folder, err := manifest.Begin(on, filepath.Dir(folder), filepath.Base(folder))
	if err != nil {
		return err
	}
	shards := map[string]json.RawMessage{}
	m.Files = []manifest.File{}
	for _, h := range parts {
		files, state, err := persistShard(ctx, on, folder, h)
		if err != nil {
			return err
		}
		m.Files = append(m.Files, files...)
		shards[fmt.Sprint(h.About.Rank)] = state
	}
	var of struct {
		Format  string                     `json:"format"`
		Version int                        `json:"version"`
		Shards  map[string]json.RawMessage `json:"shards"`
	}
	if err := json.Unmarshal(m.State, &of); err != nil {
		return fmt.Errorf("%s: its state cannot be read: %w", parts[0].Slot, err)
	}
	of.Shards = shards
	if m.State, err = json.Marshal(of); err != nil {
		return err
	}
	return manifest.WriteManifest(on, at, &m)
}

func persistShard(ctx context.Context, on manifest.FS, folder string, h Held) (files []manifest.File, state json.RawMessage, err error) {
	s, err := Open(h.Slot)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if s.About.Manifest.Cut.ID != h.About.Manifest.Cut.ID {
		return nil, nil, fmt.Errorf("%s: another checkpoint lies there now", h.Slot)
	}
	files, err = s.writeFiles(ctx, on, folder, &s.About.Rank)
	return files, s.About.Manifest.State, err
}

// shardsLeft persists what persistNewest does for checkpoints that are one slot each.
func shardsLeft(ctx context.Context, on func(path string) manifest.FS, held []Held, run string) (all []Saved) {
	parts := wholeShards(held, run)
	if parts == nil {
		return nil
	}
	to := on(parts[0].About.Path)
	if _, err := to.ReadFile(parts[0].About.Path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return []Saved{{parts[0], persistShards(ctx, to, parts)}}
}
