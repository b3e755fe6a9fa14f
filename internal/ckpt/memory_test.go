package ckpt

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/crc64nvme"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/flashckpt/memory"
	"github.com/headrace/headrace/internal/ckpt/ckpttest"
)

func TestTheListShowsWhatLiesInMemoryOfThisNode(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	m, err := manifest.Load(manifest.OS{}, filepath.Join(ckpttest.Save(t, dir, 130, 2, 500, ckpttest.Unchanged), manifest.FileName))
	if err != nil {
		t.Fatal(err)
	}
	m.Step, m.Files = 150, []manifest.File{}
	text, err := json.Marshal(memory.About{Version: 1, Path: "/x", Rank: 1, Node: "gpu-7", Manifest: *m})
	if err != nil {
		t.Fatal(err)
	}
	slot := []byte("HRSLOT01")
	for _, v := range []uint64{9, 9, 0, crc64nvme.Checksum(nil), uint64(len(text)), crc64nvme.Checksum(text)} {
		slot = binary.LittleEndian.AppendUint64(slot, v)
	}
	slot = append(binary.LittleEndian.AppendUint64(slot, crc64nvme.Checksum(slot)), make([]byte, 4096-64)...)
	about, err := json.Marshal(memory.Folder{Dir: filepath.Join(dir, "ckpt"), ID: "1", Job: "default"})
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(root, "1-1")
	for path, b := range map[string][]byte{"about.json": about, "rank-1-slot-0": append(slot, text...), "rank-2-slot-0": slot} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, path), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	views, err := InMemory(root, filepath.Join(dir, "ckpt"), nil)
	if err != nil || len(views) != 1 {
		t.Fatalf("%+v, %v", views, err)
	}
	var out bytes.Buffer
	WriteList(&out, views, dir, false)
	if text := out.String(); !strings.Contains(text, "memory of gpu-7, rank 1") || !strings.Contains(text, "150") || !strings.Contains(text, "rank-1-slot-0") {
		t.Errorf("the list does not show the slot in memory:\n%s", text)
	}
	if views, err := InMemory(root, dir, nil); err != nil || len(views) != 0 {
		t.Errorf("another folder: %+v, %v", views, err)
	}
}
