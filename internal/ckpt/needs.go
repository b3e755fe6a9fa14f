package ckpt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/shardsvc/cut"
)

// verifyNeeds verifies the checkpoints without which c cannot be loaded: the bases of
// deltas, which lie beside it. If a base needs another checkpoint, that is verified too.
func verifyNeeds(ctx context.Context, c *manifest.Checkpoint, how manifest.Verifying) (faults []Fault, err error) {
	if len(c.Manifest.Needs) == 0 {
		return nil, nil
	}
	beside, err := manifest.Find(how.On, manifest.Dir(c.Folder()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	known := map[cut.ID]bool{c.Manifest.Cut.ID: true}
	for needs := slices.Clone(c.Manifest.Needs); len(needs) > 0; needs = needs[1:] {
		id := needs[0]
		if known[id] {
			continue
		}
		known[id] = true
		at := slices.IndexFunc(beside, func(b manifest.Checkpoint) bool { return b.Err == nil && b.Manifest.Cut.ID == id })
		if at < 0 {
			faults = append(faults, Fault{c.Path, fmt.Sprintf("it needs the checkpoint of cut %s, and that is not here", id)})
			continue
		}
		b := &beside[at]
		wrong, err := manifest.Verify(ctx, b.Folder(), b.Manifest, how)
		if err != nil {
			return nil, err
		}
		for _, f := range wrong {
			faults = append(faults, Fault{manifest.Join(b.Folder(), f.Path), f.Err.Error()})
		}
		needs = append(needs, b.Manifest.Needs...)
	}
	return faults, nil
}
