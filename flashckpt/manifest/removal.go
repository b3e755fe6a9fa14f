package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/headrace/headrace/shardsvc/cut"
)

// RemovalPath is where the mark of a removal that has begun is. The mark holds the id of the
// cut: one that a killed process has left does not count for another checkpoint that was
// written under the same name.
func RemovalPath(manifest string) string { return manifest + ".removing" }

// BeginRemoval marks a checkpoint as being removed, durably, before its cut is forgotten and
// its files go: from then on SetPin refuses. If the checkpoint is pinned, the mark is taken
// away again, and the error wraps ErrPinned.
func (c *Checkpoint) BeginRemoval(on FS) error {
	var id string
	if c.Manifest != nil {
		id = c.Manifest.Cut.ID.String()
	}
	path := RemovalPath(c.Path)
	// A removal makes room, so a full disk must not refuse it. A mark that is empty counts.
	if _, err := put(on, path, strings.NewReader(id+"\n")); err != nil && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	if err := on.SyncDir(Dir(path)); err != nil {
		return err
	}
	switch pin, err := readPin(on, c.Path); {
	case err != nil:
		return err
	case pin == nil:
		return nil
	case pin.Reason != "":
		return errors.Join(fmt.Errorf("%w: %s", ErrPinned, pin.Reason), c.CancelRemoval(on))
	}
	return errors.Join(ErrPinned, c.CancelRemoval(on))
}

// CancelRemoval takes the mark away: the checkpoint stays.
func (c *Checkpoint) CancelRemoval(on FS) error { return ignoreMissing(on.Remove(RemovalPath(c.Path))) }

// removalBegan: the manifest is gone, or a removal of this checkpoint has begun. A mark that
// cannot be read counts.
func removalBegan(on FS, path string) (bool, error) {
	mark, err := on.ReadFile(RemovalPath(path))
	none := errors.Is(err, fs.ErrNotExist)
	if err != nil && !none {
		return false, err
	}
	m, err := Load(on, path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if none || err != nil {
		return !none, nil // a damaged checkpoint can be pinned
	}
	id, err := cut.ParseID(string(bytes.TrimSpace(mark)))
	return err != nil || id == m.Cut.ID, nil
}
