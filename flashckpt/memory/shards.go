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
func wholeShards(held []Checkpoint, run string) []Checkpoint {
	byCut := map[cut.ID][]Checkpoint{}
	for _, h := range held {
		if h.About.Shard && h.About.Run == run {
			id := h.About.Manifest.Cut.ID
			byCut[id] = append(byCut[id], h)
		}
	}
	var best []Checkpoint
	for _, parts := range byCut {
		slices.SortFunc(parts, func(a, b Checkpoint) int { return cmp.Compare(a.About.Rank, b.About.Rank) })
		parts = slices.CompactFunc(parts, func(a, b Checkpoint) bool { return a.About.Rank == b.About.Rank })
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
func persistShards(ctx context.Context, on manifest.FS, parts []Checkpoint) error {
	m := parts[0].About.Manifest
	at := parts[0].About.Path
	folder := manifest.Dir(at)
	if want := manifest.Folder(m.Step, m.Rank, m.Cut.ID); filepath.Base(folder) != want || filepath.Base(at) != manifest.FileName {
		return fmt.Errorf("%s: its path %s is not %s in a folder %s", parts[0].Slot, at, manifest.FileName, want)
	}
	if _, is := on.(manifest.Bucket); !is {
		if _, err := manifest.Begin(on, filepath.Dir(folder), filepath.Base(folder)); err != nil {
			return err
		}
	}
	states := make([]json.RawMessage, len(parts))
	m.Files = []manifest.File{}
	for i, h := range parts {
		files, state, err := persistShard(ctx, on, folder, h)
		if err != nil {
			return err
		}
		m.Files = append(m.Files, files...)
		states[i] = state
	}
	if err := ofShards(&m, states); err != nil {
		return err
	}
	_, err := commit(on, at, &m)
	return err
}

// ofShards puts into a manifest the states of all ranks, and the checkpoints that they need.
func ofShards(m *manifest.Manifest, states []json.RawMessage) error {
	var all struct {
		Format  string                     `json:"format"`
		Version int                        `json:"version"`
		Shards  map[string]json.RawMessage `json:"shards"`
	}
	all.Shards = map[string]json.RawMessage{}
	m.Needs = nil
	for rank, state := range states {
		all.Shards[fmt.Sprint(rank)] = state
		var of struct {
			Format  string `json:"format"`
			Version int    `json:"version"`
			Base    *struct {
				Cut cut.ID `json:"cut"`
			} `json:"base"`
		}
		if err := json.Unmarshal(state, &of); err != nil {
			return fmt.Errorf("the state of rank %d cannot be read: %w", rank, err)
		}
		all.Format, all.Version = of.Format, max(all.Version, of.Version)
		if of.Base != nil && !slices.Contains(m.Needs, of.Base.Cut) {
			m.Needs = append(m.Needs, of.Base.Cut)
		}
	}
	slices.Sort(m.Needs)
	var err error
	m.State, err = json.Marshal(all)
	return err
}

// uploadPart writes the part of a rank into a bucket: its files, then the part's description,
// which lists them. It replaces the description of an earlier attempt at this checkpoint. The files
// of that attempt stay.
func (s *Slot) uploadPart(ctx context.Context, on manifest.Bucket) error {
	folder, m := manifest.Dir(s.About.Path), &s.About.Manifest
	files, state, err := s.putFiles(ctx, on, folder)
	if err != nil {
		return err
	}
	part := manifest.Part{Cut: m.Cut.ID, Step: m.Step, Rank: s.About.Rank, WorldSize: m.WorldSize, Files: files, State: state}
	return manifest.WritePart(on, folder, &part)
}

// Gather writes the manifest of a sharded checkpoint in a bucket, if the parts of all ranks
// lie there. This slot holds one of them. missing are the ranks whose parts do not lie there.
func Gather(on manifest.Bucket, s *Slot) (missing []uint32, err error) {
	m, at := s.About.Manifest, s.About.Path
	if !s.About.Shard {
		return nil, fmt.Errorf("%s holds no part of a sharded checkpoint", s.Path)
	}
	folder := manifest.Dir(at)
	names, err := on.ReadDir(folder) // one request, while parts are missing
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for rank := range m.WorldSize {
		if !slices.ContainsFunc(names, func(n manifest.Name) bool { return n.Name == manifest.PartName(rank) }) {
			missing = append(missing, rank)
		}
	}
	if len(missing) > 0 {
		return missing, nil
	}
	parts, missing, err := manifest.Parts(on, folder, m.Cut.ID, m.WorldSize)
	if err != nil || len(missing) > 0 {
		return missing, err
	}
	m.Files = []manifest.File{}
	if err := m.Merge(parts); err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	states := make([]json.RawMessage, len(parts))
	for rank, part := range parts {
		states[rank] = part.State
	}
	if err := ofShards(&m, states); err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	_, err = commit(on, at, &m)
	return nil, err
}

func persistShard(ctx context.Context, on manifest.FS, folder string, h Checkpoint) (files []manifest.File, state json.RawMessage, err error) {
	s, err := Open(h.Slot)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if s.About.Manifest.Cut.ID != h.About.Manifest.Cut.ID {
		return nil, nil, fmt.Errorf("%s: another checkpoint lies there now", h.Slot)
	}
	if bucket, is := on.(manifest.Bucket); is {
		files, state, err = s.putFiles(ctx, bucket, folder)
		for i := range files {
			files[i].Rank = &h.About.Rank
		}
		return files, state, err
	}
	files, err = s.writeFiles(ctx, on, folder, &s.About.Rank)
	return files, s.About.Manifest.State, err
}

// shardsLeft does for sharded checkpoints what PersistNewest does for those of one slot.
func shardsLeft(ctx context.Context, on func(path string) manifest.FS, held []Checkpoint, run string) (all []Saved) {
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
