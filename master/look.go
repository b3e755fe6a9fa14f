package master

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/headrace/headrace/flashckpt/bucket"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/shardsvc/cut"
)

// look says whether a valid manifest of a cut is at a path of this machine, and when it was
// made. If the folder of checkpoints is not on this machine, or its bucket does not answer,
// it returns an error, and the cut stays unresolved.
func (m *Master) look(ctx context.Context, path string, cut cut.ID) (found bool, created time.Time, err error) {
	places := m.cfg.Checkpoints
	if places == nil {
		places = bucket.None()
	}
	return lookOn(places.On(ctx, path, manifest.OS{}), path, cut)
}

func lookOn(on manifest.FS, path string, cut cut.ID) (found bool, created time.Time, err error) {
	if !manifest.Absolute(path) {
		return false, time.Time{}, fmt.Errorf("%q is not an absolute path of this machine", path)
	}
	m, err := manifest.Load(on, path)
	switch {
	case err == nil && m.Cut.ID != cut:
		return false, time.Time{}, nil
	case err == nil:
		if err := manifest.Stays(on, path); err != nil {
			return false, time.Time{}, err
		}
		return true, m.Created, nil
	case errors.Is(err, manifest.ErrDamaged), errors.Is(err, manifest.ErrInvalid):
		return false, time.Time{}, nil // it does not count
	case !errors.Is(err, fs.ErrNotExist):
		return false, time.Time{}, err
	}
	if manifest.InBucket(path) {
		return false, time.Time{}, nil // the bucket has answered, and it is not there
	}
	dir := filepath.Dir(filepath.Dir(path))
	if _, err := on.ReadDir(dir); err != nil {
		return false, time.Time{}, fmt.Errorf("the folder of checkpoints: %w", err)
	}
	return false, time.Time{}, nil
}
