package ckpt

import (
	"path/filepath"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/flashckpt/memory"
)

// InMemory are the views of what lies in this node's memory of the checkpoint folder at
// path: by rank, the newest first.
func InMemory(root, path string, b *Ledger) ([]View, error) {
	folders, err := memory.Folders(root, "")
	if err != nil {
		return nil, err
	}
	var views []View
	for i := range folders {
		if !sameFolder(folders[i].Dir, path) {
			continue
		}
		held, err := folders[i].Held()
		if err != nil {
			return nil, err
		}
		for j := range held {
			h := &held[j]
			v := ViewOf(&manifest.Checkpoint{Path: h.Slot, Manifest: &h.About.Manifest}, b)
			v.State, v.Node, v.Holder, v.Bytes = "memory", h.About.Node, &h.About.Rank, h.Bytes
			views = append(views, v)
		}
	}
	return views, nil
}

func sameFolder(a, b string) bool {
	if manifest.InBucket(a) || manifest.InBucket(b) {
		return manifest.Clean(a) == manifest.Clean(b)
	}
	x, err1 := filepath.EvalSymlinks(a)
	y, err2 := filepath.Abs(b)
	if err1 != nil || err2 != nil {
		return false
	}
	y, err2 = filepath.EvalSymlinks(y)
	return err2 == nil && x == y
}
