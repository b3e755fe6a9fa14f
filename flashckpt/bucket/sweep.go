package bucket

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/storage"
)

// Begin marks a checkpoint as being removed. If it is pinned, the error wraps
// manifest.ErrPinned.
func (p *Places) Begin(ctx context.Context, of string) error {
	on := &FS{ctx: ctx, places: p}
	c, err := one(on, of)
	if err != nil {
		return err
	}
	return c.BeginRemoval(on)
}

// Cancel takes the mark of Begin away.
func (p *Places) Cancel(ctx context.Context, of string) error {
	return (&manifest.Checkpoint{Path: of}).CancelRemoval(&FS{ctx: ctx, places: p})
}

// Remove removes a checkpoint in a folder of its own: the manifest first.
func (p *Places) Remove(ctx context.Context, of string) error {
	on := &FS{ctx: ctx, places: p}
	c, err := one(on, of)
	if err != nil {
		return err
	}
	return c.Delete(on)
}

func one(on *FS, of string) (*manifest.Checkpoint, error) {
	m, err := manifest.Load(on, of)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &manifest.Checkpoint{Path: of, Manifest: m}, nil
}

// Sweep removes what killed saves have left in a folder of checkpoints: folders without a
// manifest, and uploads that did not end. newest is a manifest that was just written there. Sweep
// touches only saves of the same rank in which nothing has changed for longer than patience, by
// the bucket's clock.
func (p *Places) Sweep(ctx context.Context, newest string, patience time.Duration) (removed []string, err error) {
	folder := manifest.Dir(manifest.Dir(newest))
	c, err := p.at(folder)
	if err != nil {
		return nil, err
	}
	mine := path.Base(manifest.Dir(newest))
	now, err := c.Stat(ctx, path.Join(mine, manifest.FileName))
	if err != nil {
		return nil, err
	}
	before := now.Modified.Add(-patience)
	all, err := c.List(ctx, "", "", 0)
	if err != nil {
		return nil, err
	}
	for name, of := range halves(all) {
		if name == mine || owner(name) != owner(mine) || !of.changed.Before(before) {
			continue
		}
		if err := c.Delete(ctx, of.keys...); err != nil {
			return removed, err
		}
		removed = append(removed, folder+"/"+name)
	}
	_, err = c.EndUploads(ctx, before, func(key string) bool {
		name, _, below := strings.Cut(key, "/")
		return below && name != mine && manifest.IsFolder(name) && owner(name) == owner(mine)
	})
	return removed, err
}

type half struct {
	keys    []string
	changed time.Time
}

// halves returns the folders of checkpoints that have no manifest.
func halves(all []storage.Object) map[string]*half {
	found, whole := map[string]*half{}, map[string]bool{}
	for _, o := range all {
		name, rest, below := strings.Cut(o.Key, "/")
		if !below || !manifest.IsFolder(name) {
			continue
		}
		whole[name] = whole[name] || rest == manifest.FileName
		h := found[name]
		if h == nil {
			h = &half{}
			found[name] = h
		}
		h.keys = append(h.keys, o.Key)
		if o.Modified.After(h.changed) {
			h.changed = o.Modified
		}
	}
	for name := range whole {
		if whole[name] {
			delete(found, name)
		}
	}
	return found
}

var rankOf = regexp.MustCompile(`-rank-([0-9]+)-`)

// owner returns the rank in a folder's name; "": the checkpoint is the group's.
func owner(name string) string {
	if m := rankOf.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return ""
}
