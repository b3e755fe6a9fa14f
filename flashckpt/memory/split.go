package memory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headrace/headrace/flashckpt/manifest"
)

// split is one of the files that an image becomes on storage, if parts of the state have
// files of their own: a safetensors file with some of the image's arrays. In the file of the
// place "model" the array "model.w" is called "w".
type split struct {
	place string // "": the rest
	name  string
	size  int64
	parts [][]byte // of the file, one after the other
}

// splits gives the files of an image. nil: it is one file, as it is.
func (s *Slot) splits() ([]split, error) {
	var state struct {
		File  string            `json:"file"`
		Files map[string]string `json:"own"`
	}
	if err := json.Unmarshal(s.About.Manifest.State, &state); err != nil {
		return nil, fmt.Errorf("%s: its state cannot be read: %w", s.Path, err)
	}
	if len(state.Files) == 0 {
		return nil, nil
	}
	if state.Files[""] != "" {
		return nil, fmt.Errorf("%s: its state has a file without a place", s.Path)
	}
	names := maps.Clone(state.Files)
	names[""] = state.File
	image := s.image()
	var entries map[string]json.RawMessage
	var data []byte
	if err := guarded(func() error {
		if len(image) < 8 {
			return fmt.Errorf("an image of %d bytes", len(image))
		}
		if err := checkImage(image); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint64(image)
		data = image[8+n:]
		return json.Unmarshal(image[8:8+n], &entries)
	}); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	delete(entries, "__metadata__")
	of := map[string][]array{}
	for name, raw := range entries {
		a := array{}
		if err := json.Unmarshal(raw, &a); err != nil || len(a.Offsets) != 2 {
			return nil, fmt.Errorf("%s: its array %q cannot be read", s.Path, name)
		}
		place := placeOf(name, names)
		a.name = name
		if place != "" {
			a.name = name[len(place)+1:]
		}
		of[place] = append(of[place], a)
	}
	var all []split
	for _, place := range slices.Sorted(maps.Keys(names)) {
		file, err := splitOf(of[place], data)
		if err != nil {
			return nil, err
		}
		file.place, file.name = place, names[place]
		if filepath.Base(file.name) != file.name || file.name == ".." {
			return nil, fmt.Errorf("%s: %q is no name of a file", s.Path, file.name)
		}
		all = append(all, file)
	}
	return all, nil
}

// array is an entry of a safetensors header.
type array struct {
	name    string
	DType   json.RawMessage `json:"dtype"`
	Shape   json.RawMessage `json:"shape"`
	Offsets []int64         `json:"data_offsets"`
}

// placeOf is the place whose file an array lies in: the longest one that its name begins with.
func placeOf(name string, names map[string]string) (place string) {
	for p := range names {
		if p != "" && len(p) > len(place) && strings.HasPrefix(name, p+".") {
			place = p
		}
	}
	return place
}

// splitOf lays arrays out as a file of their own, in the order of the image.
func splitOf(arrays []array, data []byte) (split, error) {
	slices.SortFunc(arrays, func(a, b array) int {
		return cmp.Or(cmp.Compare(a.Offsets[0], b.Offsets[0]), cmp.Compare(a.Offsets[1], b.Offsets[1]), cmp.Compare(a.name, b.name))
	})
	f := split{parts: [][]byte{nil}}
	header := map[string]array{}
	at := int64(0)
	for _, a := range arrays {
		from, to := a.Offsets[0], a.Offsets[1]
		f.parts = append(f.parts, data[from:to])
		a.Offsets = []int64{at, at + to - from}
		at += to - from
		header[a.name] = a
	}
	text, err := json.Marshal(header)
	if err != nil {
		return f, err
	}
	text = append(text, bytes.Repeat([]byte(" "), (8-len(text)%8)%8)...) // the data is aligned
	f.parts[0] = append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	f.size = int64(len(f.parts[0])) + at
	return f, nil
}

// from reads the file.
func (f *split) from(ctx context.Context) *reader {
	readers := make([]io.Reader, len(f.parts))
	for i, p := range f.parts {
		readers[i] = bytes.NewReader(p)
	}
	return &reader{ctx: ctx, from: io.MultiReader(readers...)}
}

// writeFiles writes the slot's state as files, which are synced when it returns. rank is the rank
// whose part of the state this is; nil: it is the whole state. Changed memory is an error.
func (s *Slot) writeFiles(ctx context.Context, on manifest.FS, folder string, rank *uint32) ([]manifest.File, error) {
	splits, err := s.splits()
	if err != nil {
		return nil, err
	}
	if splits == nil {
		name, err := fileOf(s.About.Manifest.State)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Path, err)
		}
		file, err := s.write(ctx, on, folder, name)
		if err != nil {
			return nil, err
		}
		if file.CRC != s.CRC {
			return nil, s.changed(file.CRC)
		}
		file.Rank = rank
		return []manifest.File{file}, nil
	}
	var files []manifest.File
	for i := range splits {
		f := &splits[i]
		var file manifest.File
		err := guarded(func() (err error) {
			file, err = manifest.WriteFile(on, folder, f.name, f.from(ctx))
			return err
		})
		if err != nil {
			return nil, err
		}
		file.Rank = rank
		files = append(files, file)
	}
	return files, s.Fault() // after the last byte was read
}

func (s *Slot) changed(found manifest.CRC64) error {
	return fmt.Errorf("%s: its %d bytes have the checksum %v, and %v was written: its memory was changed", s.Path, s.Bytes, found, s.CRC)
}

// putFiles is writeFiles for a bucket: each file gets a name that is free there, and the
// state says which.
func (s *Slot) putFiles(ctx context.Context, on manifest.Bucket, folder string) (files []manifest.File, state json.RawMessage, err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, f := range files { // nobody else knows of them
			err = errors.Join(err, on.Remove(manifest.Join(folder, f.Path)))
		}
	}()
	splits, err := s.splits()
	if err != nil {
		return nil, nil, err
	}
	state = s.About.Manifest.State
	if splits == nil {
		name, err := fileOf(state)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.Path, err)
		}
		file, err := s.put(ctx, on, folder, split{name: name, size: s.Bytes, parts: [][]byte{s.image()}})
		if err != nil {
			return nil, nil, err
		}
		files = append(files, file)
		if file.CRC != s.CRC {
			return files, nil, s.changed(file.CRC)
		}
		state, err = inFile(state, "", file.Path)
		return files, state, err
	}
	for _, f := range splits {
		file, err := s.put(ctx, on, folder, f)
		if err != nil {
			return files, nil, err
		}
		files = append(files, file)
		if state, err = inFile(state, f.place, file.Path); err != nil {
			return files, nil, fmt.Errorf("%s: %w", s.Path, err)
		}
	}
	return files, state, s.Fault() // after the last byte was read
}
