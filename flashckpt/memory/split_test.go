package memory

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/flashckpt/manifest"
)

// tensor is an array of bytes in a safetensors image.
type tensor struct{ name, bytes string }

func imageOf(t testing.TB, all ...tensor) []byte {
	t.Helper()
	header, data := map[string]any{}, ""
	for _, a := range all {
		header[a.name] = map[string]any{"dtype": "U8", "shape": []int{len(a.bytes)}, "data_offsets": []int{len(data), len(data) + len(a.bytes)}}
		data += a.bytes
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, strings.Repeat(" ", (8-len(text)%8)%8)...)
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), data...)
}

// readTensors returns the arrays of a safetensors file, sorted by name.
func readTensors(t *testing.T, path string) (all []tensor) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkImage(b); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	n := binary.LittleEndian.Uint64(b)
	var header map[string]struct {
		Offsets []int `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	for name, e := range header {
		all = append(all, tensor{name, string(b[8+int(n)+e.Offsets[0] : 8+int(n)+e.Offsets[1]])})
	}
	slices.SortFunc(all, func(a, b tensor) int { return strings.Compare(a.name, b.name) })
	return all
}

// inParts gives model and optimizer files of their own.
func inParts(a *About) {
	a.Manifest.State = json.RawMessage(`{"format":"headrace-python-state","version":4,"tree":{"dict":[]},"file":"state.safetensors",` +
		`"own":{"model":"model.safetensors","model.head":"model_head.safetensors","optimizer":"optimizer.safetensors"}}`)
}

var parts = []tensor{{"model.w", "wwwwwwww"}, {"seen", "12345"}, {"optimizer.0.m", "mmm"}, {"model.head.b", "h"}, {"model.b", ""}, {"optimizer.0.v", "vv"}, {"models", "x"}}

func TestPartsOfAStateGetFilesOfTheirOwnWithTheirOwnNames(t *testing.T) {
	root, dir := t.TempDir(), filepath.Join(t.TempDir(), "ckpt")
	_, path := writeSlotAs(t, root, dir, 0, 1, imageOf(t, parts...), inParts)
	saved, err := PersistNewest(t.Context(), func(string) manifest.FS { return Direct{} }, root, Left{Job: "default", Run: "r"})
	if err != nil || len(saved) != 1 || saved[0].Err != nil {
		t.Fatalf("%+v, %v", saved, err)
	}
	m, err := manifest.Load(manifest.OS{}, path)
	if err != nil {
		t.Fatal(err)
	}
	if faults, err := manifest.Verify(t.Context(), filepath.Dir(path), m, manifest.Verifying{}); err != nil || len(faults) > 0 || len(m.Files) != 4 {
		t.Fatalf("%v, %v, %+v", faults, err, m.Files)
	}
	for name, want := range map[string][]tensor{
		"model.safetensors":      {{"b", ""}, {"w", "wwwwwwww"}},
		"model_head.safetensors": {{"b", "h"}},
		"optimizer.safetensors":  {{"0.m", "mmm"}, {"0.v", "vv"}},
		"state.safetensors":      {{"models", "x"}, {"seen", "12345"}},
	} {
		if got := readTensors(t, filepath.Join(filepath.Dir(path), name)); !slices.Equal(got, want) {
			t.Errorf("file %s has the arrays %v, want %v", name, got, want)
		}
	}
}

func TestChangedMemoryOfAStateInPartsNeverBecomesACheckpoint(t *testing.T) {
	image := imageOf(t, parts...)
	for _, at := range []int{3, 12, len(image) - 1} { // the header's length, the header, the data
		root, dir := t.TempDir(), filepath.Join(t.TempDir(), "ckpt")
		slot, path := writeSlotAs(t, root, dir, 0, 1, image, inParts)
		change(t, slot, page+int64(at))
		saved, err := PersistNewest(t.Context(), func(string) manifest.FS { return Direct{} }, root, Left{Job: "default", Run: "r"})
		if err != nil || len(saved) != 1 || saved[0].Err == nil {
			t.Fatalf("byte %d was changed, and the result is %+v (%v), want an error", at, saved, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("byte %d was changed, and its manifest is there (%v)", at, err)
		}
	}
}

func TestAPartIsWrittenToItsFolderOnly(t *testing.T) {
	for _, name := range []string{"../model.safetensors", "a/model.safetensors", "", ".."} {
		root, dir := t.TempDir(), filepath.Join(t.TempDir(), "ckpt")
		_, path := writeSlotAs(t, root, dir, 0, 1, imageOf(t, parts...), func(a *About) {
			text, _ := json.Marshal(map[string]any{"file": "state.safetensors", "own": map[string]string{"model": name}})
			a.Manifest.State = text
		})
		saved, err := PersistNewest(t.Context(), func(string) manifest.FS { return Direct{} }, root, Left{Job: "default", Run: "r"})
		if err != nil || len(saved) != 1 || saved[0].Err == nil {
			t.Fatalf("a part with the file name %q got %+v (%v), want an error", name, saved, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a part with the file name %q: its manifest is there (%v)", name, err)
		}
	}
}
