package ckpt

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/advice"
)

// On says where a path of checkpoints lies.
type On func(path string) manifest.FS

// Find lists the checkpoints that a path means: the one of a manifest or of a
// checkpoint's folder, or all of a folder of checkpoints, the newest first.
func Find(on On, path string) ([]manifest.Checkpoint, error) {
	abs, err := absolute(path)
	if err != nil {
		return nil, err
	}
	all, err := manifest.Find(on(abs), abs)
	hint := "a path is a manifest (" + manifest.FileName + "), a checkpoint's folder, or a folder of checkpoints"
	switch {
	case errors.Is(err, fs.ErrNotExist) && manifest.InBucket(abs):
		return nil, advice.NotFound.Errorf(hint, "%s: nothing lies there", path)
	case errors.Is(err, fs.ErrNotExist):
		return nil, advice.NotFound.Errorf(hint, "%s: no such file or folder", path)
	case errors.Is(err, syscall.ENOTDIR):
		return nil, advice.NotFound.Errorf(hint, "%s: a file that is no manifest", path)
	}
	return all, err
}

func absolute(path string) (string, error) {
	if manifest.InBucket(path) {
		return manifest.Clean(path), nil
	}
	return filepath.Abs(path)
}

// One is the checkpoint that a path means: of several the newest. It is whole.
func One(on On, path string) (*manifest.Checkpoint, error) {
	all, err := Find(on, path)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, advice.NotFound.Errorf("`headrace ckpt list` shows what is in a folder", "%s: no checkpoint", path)
	}
	if c := &all[0]; c.Err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, c.Err)
	}
	return &all[0], nil
}

// Exactly is the only checkpoint that a path means. Verbs that change something use it:
// they never choose among several.
func Exactly(on On, path string) (*manifest.Checkpoint, error) {
	all, err := Find(on, path)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, advice.NotFound.Errorf("", "%s: no checkpoint", path)
	case len(all) > 1:
		return nil, advice.Usage.Errorf("name one of them, like "+all[0].Folder(), "%s holds %d checkpoints", path, len(all))
	}
	return &all[0], nil
}
