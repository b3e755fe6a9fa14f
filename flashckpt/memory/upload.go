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
	"strconv"
	"strings"

	"github.com/minio/crc64nvme"

	"github.com/headrace/headrace/flashckpt/manifest"
)

// upload writes the checkpoint into a bucket: the image under a name where nothing is, then
// the manifest where none is. An image without a manifest is of an upload that was killed,
// or of another one that goes on; it is not written over, and goes with its folder.
func (s *Slot) upload(ctx context.Context, on manifest.Bucket, m *manifest.Manifest, name string) error {
	folder := manifest.Dir(s.About.Path)
	file, err := s.put(ctx, on, folder, name)
	if err != nil {
		return err
	}
	own := manifest.Join(folder, file.Path)
	if file.CRC != s.CRC {
		return errors.Join(fmt.Errorf("%s: its %d bytes have the checksum %v, and %v was written: its memory was changed", s.Path, s.Bytes, file.CRC, s.CRC), on.Remove(own))
	}
	if m.State, err = inFile(m.State, file.Path); err != nil {
		return fmt.Errorf("%s: %w", s.Path, err)
	}
	m.Files = []manifest.File{file}
	err = manifest.WriteManifest(on, s.About.Path, m)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	// Another one was faster. Its checkpoint has this cut, and so this state.
	there, err := manifest.Load(on, s.About.Path)
	if err != nil {
		return err
	}
	if there.Cut.ID != m.Cut.ID {
		return fmt.Errorf("%s is of cut %v, and should be of %v", s.About.Path, there.Cut.ID, m.Cut.ID)
	}
	for i := range there.Files {
		if there.Files[i].Path == file.Path {
			return nil
		}
	}
	return on.Remove(own)
}

// put uploads the image under the first name that is free.
func (s *Slot) put(ctx context.Context, on manifest.Bucket, folder, name string) (manifest.File, error) {
	stem, end := strings.TrimSuffix(name, path.Ext(name)), path.Ext(name)
	for n := 1; ; n++ {
		free, err := isFree(on, manifest.Join(folder, name))
		if err != nil {
			return manifest.File{}, err
		}
		if free {
			r := &summed{reader: reader{ctx: ctx, from: bytes.NewReader(s.image())}, sum: crc64nvme.New()}
			err := guarded(func() error { return on.PutNew(manifest.Join(folder, name), r, s.Bytes) })
			if !errors.Is(err, fs.ErrExist) {
				return manifest.File{Path: name, Size: s.Bytes, CRC: manifest.CRC64(r.sum.Sum64())}, err
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

// inFile is the state whose file has that name.
func inFile(state json.RawMessage, name string) (json.RawMessage, error) {
	if was, err := fileOf(state); err != nil || was == name {
		return state, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(state, &fields); err != nil {
		return nil, fmt.Errorf("its state cannot be read: %w", err)
	}
	var err error
	if fields["file"], err = json.Marshal(name); err != nil {
		return nil, err
	}
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
