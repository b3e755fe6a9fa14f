package ckpt

import (
	"path/filepath"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/flashckpt/memory"
	"github.com/headrace/headrace/shardsvc/cut"
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
		held, err := folders[i].Own()
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

const stateReplica = "replica"

// Replicas are the views of the copies that agents keep of other nodes' checkpoints in
// memory, of the checkpoint folder at path: by agent and rank, the newest first.
func Replicas(peers *headracev1.ListPeersReply, path string, b *Ledger) []View {
	var views []View
	for _, p := range peers.Peers {
		for _, r := range p.Keeps {
			if !sameFolder(r.Dir, path) {
				continue
			}
			m := &manifest.Manifest{Job: r.Job, Model: r.Model, Step: r.Step, WorldSize: r.WorldSize, Created: time.UnixMilli(r.WrittenMs).UTC(),
				Cut: cut.Cut{ID: cut.ID(r.Cut), Job: r.Job, Model: r.Model, Epoch: r.Epoch, Step: r.Step, Exact: true}}
			if r.PrivateRank > 0 {
				own := uint32(r.PrivateRank - 1)
				m.Rank = &own
			}
			v := ViewOf(&manifest.Checkpoint{Path: r.Path, Manifest: m}, b)
			v.State, v.Node, v.Holder, v.Bytes = stateReplica, p.Agent, &r.Rank, r.Bytes
			views = append(views, v)
		}
	}
	return views
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
