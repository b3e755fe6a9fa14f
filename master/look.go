package master

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headrace/headrace/flashckpt/manifest"
)

// look says whether a valid manifest of a cut is at a path of this machine, and
// when it was made. A storage whose folder of checkpoints is not here can not be
// seen, which is an error and settles nothing.
func look(_ context.Context, path string, cut manifest.CutID) (found bool, created time.Time, err error) {
	return lookOn(manifest.OS{}, path, cut)
}

func lookOn(on manifest.FS, path string, cut manifest.CutID) (found bool, created time.Time, err error) {
	if !filepath.IsAbs(path) {
		return false, time.Time{}, fmt.Errorf("%q is not an absolute path of this machine", path)
	}
	m, err := manifest.Load(on, path)
	switch {
	case err == nil && m.Cut.ID != cut:
		return false, time.Time{}, nil
	case err == nil:
		// Who renamed it may have died before the folder was synced: what is told to
		// brokers next must not be gone after a power failure.
		if err := on.SyncDir(filepath.Dir(path)); err != nil && !unsyncable(err) {
			return false, time.Time{}, fmt.Errorf("the folder of %s can not be synced: %w", path, err)
		}
		return true, m.Created, nil
	case errors.Is(err, manifest.ErrDamaged), errors.Is(err, manifest.ErrInvalid):
		return false, time.Time{}, nil // it does not count
	case !errors.Is(err, fs.ErrNotExist):
		return false, time.Time{}, err
	}
	dir := filepath.Dir(filepath.Dir(path))
	if _, err := on.ReadDir(dir); err != nil {
		return false, time.Time{}, fmt.Errorf("the folder of checkpoints: %w", err)
	}
	return false, time.Time{}, nil
}

// unsyncable: the file system knows no fsync of folders, or is read-only here.
func unsyncable(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EROFS)
}
