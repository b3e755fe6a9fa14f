package manifest

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Stay says which checkpoints of a folder (from Find) must stay and why, by their index:
//
//   - pinned ones
//   - the newest that verifies (private: of each rank)
//   - those of a newer version
//   - all that one of these, or another one that is not removed, needs
//   - all, if one cannot be read now (a disk's error, a bucket that is busy): it may be pinned,
//     and may need any other one
//
// remove says which ones the caller wants to remove. verified reads files, so it is asked
// from the newest on, until one verifies.
func Stay(all []Checkpoint, remove func(i int) bool, verified func(*Checkpoint) bool) map[int]string {
	stay := map[int]string{}
	for i := range all {
		switch c := &all[i]; {
		case c.Pin != nil && c.Pin.Reason != "":
			stay[i] = "it is pinned: " + c.Pin.Reason
		case c.Pin != nil:
			stay[i] = "it is pinned"
		case errors.Is(c.Err, ErrNewer):
			stay[i] = "a newer version wrote it"
		}
	}
	found := map[string]bool{}
	for i := range all {
		c := &all[i]
		if c.Err != nil || found[c.owner()] {
			continue
		}
		if !verified(c) {
			continue
		}
		found[c.owner()] = true
		if _, already := stay[i]; !already {
			stay[i] = "it is the newest that verifies"
			if c.Manifest.Rank != nil {
				stay[i] += fmt.Sprintf(" of rank %d", *c.Manifest.Rank)
			}
		}
	}
	for more := true; more; {
		more = false
		for i := range all {
			c := &all[i]
			if _, stays := stay[i]; !stays && remove(i) {
				continue
			}
			needed, _ := c.needed() // below: one whose needs are unknown
			for j := range all {
				if _, already := stay[j]; !already && all[j].Err == nil && slices.Contains(needed, all[j].Manifest.Cut.ID) {
					stay[j] = c.named() + " needs it: " + c.Path
					more = true
				}
			}
		}
	}
	for i := range all {
		c := &all[i]
		_, unknown := c.needed()
		if unknown == nil {
			continue
		}
		if _, already := stay[i]; !already {
			stay[i] = fmt.Sprintf("it cannot be read now, so it may be pinned: %v", unknown)
		}
		for j := range all {
			if _, already := stay[j]; !already && all[j].Err == nil {
				stay[j] = fmt.Sprintf("%s may need it, and cannot be read now: %v", c.Path, unknown)
			}
		}
	}
	return stay
}

// named says which checkpoint it is, for people.
func (c *Checkpoint) named() string {
	if c.Manifest == nil {
		return "a checkpoint of a newer version"
	}
	return "step " + fmt.Sprint(c.Manifest.Step)
}

// owner names the group of checkpoints in which one is the newest.
func (c *Checkpoint) owner() string {
	m := c.Manifest
	if m.Rank == nil {
		return m.Job
	}
	return fmt.Sprintf("%s/%d", m.Job, *m.Rank)
}

// Delete removes a checkpoint that may go (Stay). It removes the manifest first, durably,
// so from then on the checkpoint does not count; then its data. A folder whose name comes
// from Folder is the checkpoint's own and is removed with all that is in it. In any other
// folder only the files that the manifest names are removed, and folders that are empty
// then. A damaged manifest names none.
func (c *Checkpoint) Delete(on FS) error {
	folder := c.Folder()
	for _, path := range []string{c.Path, PinPath(c.Path), RemovalPath(c.Path)} {
		if err := ignoreMissing(on.Remove(path)); err != nil {
			return err
		}
	}
	if err := on.SyncDir(folder); err != nil {
		return err
	}
	if c.ownFolder() {
		if err := removeTree(on, folder); err != nil {
			return err
		}
		return on.SyncDir(Dir(folder))
	}
	if c.Manifest == nil {
		return nil
	}
	for _, f := range c.Manifest.Files {
		if err := removeBelow(on, folder, f.Path); err != nil {
			return err
		}
	}
	return on.SyncDir(folder)
}

// ownFolder: Folder gave the folder its name, for this cut if it is known.
func (c *Checkpoint) ownFolder() bool {
	name := filepath.Base(c.Folder())
	if filepath.Base(c.Path) != FileName || !IsFolder(name) {
		return false
	}
	return c.Manifest == nil || strings.HasSuffix(name, "-"+c.Manifest.Cut.ID.String())
}

var folderName = regexp.MustCompile(`^step-[0-9]{10,19}(-rank-[0-9]{1,10})?-[0-9a-f]{16}$`)

// IsFolder reports whether Folder gave that name.
func IsFolder(name string) bool { return folderName.MatchString(name) }

func removeTree(on FS, folder string) error {
	names, err := on.ReadDir(folder)
	if err != nil {
		return ignoreMissing(err)
	}
	for _, n := range names {
		path := Join(folder, n.Name)
		if n.Folder && !n.Link {
			err = removeTree(on, path)
		} else {
			err = ignoreMissing(on.Remove(path))
		}
		if err != nil {
			return err
		}
	}
	return ignoreMissing(on.Remove(folder))
}

// removeBelow removes a file, and the folders on the way to it that are empty.
func removeBelow(on FS, folder, file string) error {
	if err := ignoreMissing(on.RemoveIn(folder, file)); err != nil {
		return err
	}
	for d := path.Dir(file); d != "."; d = path.Dir(d) {
		if on.RemoveIn(folder, d) != nil {
			return nil // something else is in it
		}
	}
	return nil
}
