package memory

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headrace/headrace/flashckpt/manifest"
)

const (
	defaultRoot = "/dev/shm"
	// RootVariable names another tmpfs than /dev/shm.
	RootVariable = "HEADRACE_MEMORY_DIR"
	aboutFile    = "about.json"
)

// Root is the folder that this user's slots lie in.
func Root() string {
	return filepath.Join(cmp.Or(os.Getenv(RootVariable), defaultRoot), fmt.Sprintf("headrace-%d", os.Getuid()))
}

// Checkpoint is a checkpoint in memory.
type Checkpoint struct {
	Slot    string
	Replica bool // of another node's trainer; else this node's trainer wrote it
	Bytes   int64
	About   About
	Written time.Time

	head Head
}

// Folder holds the slots of one job's checkpoint folder.
type Folder struct {
	Path string `json:"-"`
	Dir  string `json:"dir"` // of the checkpoints on storage
	ID   string `json:"id"`
	Job  string `json:"job"`
}

// Folders lists the folders of slots below root, of one job if it is named.
func Folders(root, job string) ([]Folder, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	var all []Folder
	for _, e := range entries {
		f := Folder{Path: filepath.Join(root, e.Name())}
		b, err := os.ReadFile(filepath.Join(f.Path, aboutFile))
		if err != nil || json.Unmarshal(b, &f) != nil || !manifest.Absolute(f.Dir) {
			continue // being made, or being removed
		}
		if job == "" || f.Job == job {
			all = append(all, f)
		}
	}
	return all, nil
}

// Own lists the complete checkpoints of this node's trainers in a folder: by rank, the
// newest first.
func (f *Folder) Own() ([]Checkpoint, error) { return f.held("rank-", slotAt) }

// Replicas lists the complete replicas of other nodes' checkpoints, likewise.
func (f *Folder) Replicas() ([]Checkpoint, error) { return f.held("replica-", slotAt) }

// held lists the slots of a kind. look reads one; nil: it holds no checkpoint.
func (f *Folder) held(kind string, look func(path string) (*Checkpoint, error)) ([]Checkpoint, error) {
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return nil, err
	}
	var all []Checkpoint
	for _, e := range entries {
		if _, ok := rankOf(e.Name(), kind); !ok {
			continue
		}
		h, err := look(filepath.Join(f.Path, e.Name()))
		if h == nil || err != nil {
			continue // it holds no checkpoint
		}
		h.Replica = kind == "replica-"
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b Checkpoint) int {
		return cmp.Or(cmp.Compare(a.About.Rank, b.About.Rank), cmp.Compare(b.About.Manifest.Cut.Order, a.About.Manifest.Cut.Order))
	})
	return all, nil
}

// slotAt reads one slot.
func slotAt(path string) (*Checkpoint, error) {
	s, err := Open(path)
	if err != nil {
		return nil, err
	}
	h := &Checkpoint{Slot: s.Path, Bytes: s.Bytes, About: s.About, Written: s.About.Manifest.Created, head: s.head}
	return h, s.Close()
}

// rankOf reads the name of a slot: rank-3-slot-0.
func rankOf(name, kind string) (uint32, bool) {
	rest, ok := strings.CutPrefix(name, kind)
	if !ok {
		return 0, false
	}
	rank, slot, ok := strings.Cut(rest, "-slot-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(rank, 10, 32)
	if err != nil {
		return 0, false
	}
	_, err = strconv.ParseUint(slot, 10, 32)
	return uint32(n), err == nil
}
