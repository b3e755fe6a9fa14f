package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/crc64nvme"

	"github.com/headrace/headrace/flashckpt/manifest"
)

// upload writes the checkpoint into a bucket: its files under names where nothing is, then
// the manifest where none is. A file without a manifest is of an upload that was killed,
// or of another one that goes on; it is not written over, and goes with its folder.
func (s *Slot) upload(ctx context.Context, on manifest.Bucket, m *manifest.Manifest) error {
	folder := manifest.Dir(s.About.Path)
	var err error
	if m.Files, m.State, err = s.putFiles(ctx, on, folder); err != nil {
		return err
	}
	there, err := commit(on, s.About.Path, m)
	if there == nil || err != nil {
		return err
	}
	var failed error
	for _, own := range m.Files {
		if !slices.ContainsFunc(there.Files, func(f manifest.File) bool { return f.Path == own.Path }) {
			failed = errors.Join(failed, on.Remove(manifest.Join(folder, own.Path)))
		}
	}
	return failed
}

// commit writes the manifest. If another writer was faster, commit returns that writer's manifest:
// its checkpoint has the same cut, and so the same state.
func commit(on manifest.FS, path string, m *manifest.Manifest) (there *manifest.Manifest, err error) {
	if err := manifest.WriteManifest(on, path, m); !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if there, err = manifest.Load(on, path); err == nil && there.Cut.ID != m.Cut.ID {
		err = fmt.Errorf("%s is of cut %v, and should be of %v", path, there.Cut.ID, m.Cut.ID)
	}
	return there, err
}

// put uploads a file under the first name that is free.
func (s *Slot) put(ctx context.Context, on manifest.Bucket, folder string, f split) (manifest.File, error) {
	name := f.name
	stem, end := strings.TrimSuffix(name, path.Ext(name)), path.Ext(name)
	for n := 1; ; n++ {
		free, err := isFree(on, manifest.Join(folder, name))
		if err != nil {
			return manifest.File{}, err
		}
		if free {
			r := &summed{reader: *f.from(ctx), sum: crc64nvme.New()}
			err := guarded(func() error { return on.PutNew(manifest.Join(folder, name), r, f.size) })
			if !errors.Is(err, fs.ErrExist) {
				return manifest.File{Path: name, Size: f.size, CRC: manifest.CRC64(r.sum.Sum64())}, err
			}
		}
		name = stem + "-" + strconv.Itoa(n) + end
	}
}

func isFree(on manifest.Bucket, path string) (bool, error) {
	r, _, err := on.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, r.Close()
}

// inFile returns the state with `name` as the file of a place.
func inFile(state json.RawMessage, place, name string) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(state, &fields); err != nil {
		return nil, fmt.Errorf("its state cannot be read: %w", err)
	}
	key, value := "file", any(name)
	if place != "" {
		files := map[string]string{}
		if err := json.Unmarshal(fields["own"], &files); err != nil {
			return nil, fmt.Errorf("its state cannot be read: %w", err)
		}
		files[place] = name
		key, value = "own", files
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(text, fields[key]) {
		return state, nil
	}
	fields[key] = text
	return json.Marshal(fields)
}

// summed knows the checksum of what was read.
type summed struct {
	reader
	sum hash.Hash64
}

func (r *summed) Read(b []byte) (int, error) {
	n, err := r.reader.Read(b)
	_, _ = r.sum.Write(b[:n]) // of a hash, never
	return n, err
}
