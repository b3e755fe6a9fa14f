package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headrace/headrace/shardsvc/cut"
)

// Checkpoint is a checkpoint of a folder, whole or not (Err).
type Checkpoint struct {
	Path     string    // of its manifest; where it would be, for a half one
	Manifest *Manifest // nil when Err is set, except that only the pin could not be read
	Pin      *Pin      // nil: not pinned
	// Err says why it does not count: ErrHalf (it has no manifest), an error that wraps
	// ErrDamaged, ErrNewer or ErrInvalid, or an error of reading it.
	Err error

	newer *needs // those of a manifest of a newer version, if they can be read
}

// needs is the part of a manifest that has the same meaning in every version.
type needs struct {
	Needs []cut.ID `json:"needs"`
}

// needed returns the cuts that a checkpoint needs. A checkpoint that can never be loaded needs
// none. The error says why the manifest or its pin cannot be read now: nobody knows then what the
// checkpoint needs, or whether it must stay.
func (c *Checkpoint) needed() ([]cut.ID, error) {
	switch {
	case c.Err == nil:
		return c.Manifest.Needs, nil
	case errors.Is(c.Err, ErrHalf), errors.Is(c.Err, ErrDamaged), errors.Is(c.Err, ErrInvalid):
		return nil, nil
	case c.newer != nil:
		return c.newer.Needs, nil
	}
	return nil, c.Err
}

// ErrHalf: a checkpoint whose save did not end, or is going on.
var ErrHalf = errors.New("there is no manifest: the save did not end, or goes on")

// Folder is where a checkpoint's files are.
func (c *Checkpoint) Folder() string { return Dir(c.Path) }

// Find lists the checkpoints that path means: the one of a manifest, or those in a folder
// and in the folders one level below it. The newest comes first (Newer); checkpoints that
// do not count come last. A missing path is fs.ErrNotExist.
func Find(on FS, path string) ([]Checkpoint, error) {
	path = Clean(path)
	if IsManifest(filepath.Base(path)) {
		c := read(on, path)
		if errors.Is(c.Err, fs.ErrNotExist) {
			return nil, c.Err
		}
		return []Checkpoint{c}, nil
	}
	names, err := on.ReadDir(path)
	if err != nil {
		return nil, err
	}
	all := inFolder(on, path, names)
	for _, n := range names {
		if !n.Folder || strings.HasPrefix(n.Name, ".") {
			continue
		}
		folder := Join(path, n.Name)
		below, err := on.ReadDir(folder)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) && !IsFolder(n.Name) {
			continue // just removed, or lost+found, or a folder that is not ours
		}
		if errors.Is(err, fs.ErrPermission) {
			all = append(all, Checkpoint{Path: Join(folder, FileName), Err: err})
			continue
		}
		if err != nil {
			return nil, err
		}
		here := inFolder(on, folder, below)
		if len(here) == 0 && IsFolder(n.Name) {
			here = []Checkpoint{{Path: Join(folder, FileName), Err: ErrHalf}}
		}
		all = append(all, here...)
	}
	slices.SortStableFunc(all, Newer)
	return all, nil
}

// Newer orders checkpoints, the newest first: by the order number of the cut, which grows
// even where epochs and steps begin again (the master lost its state, a private rank went
// back). Checkpoints of an older version have no order number and are older than all
// others. Among them the highest epoch wins, then the highest step. In a shared model each
// process counts its own steps, so there the writers' clocks decide.
func Newer(a, b Checkpoint) int {
	if a.Err != nil || b.Err != nil {
		if (a.Err == nil) != (b.Err == nil) {
			return boolean(a.Err != nil)
		}
		return cmp.Compare(b.Path, a.Path)
	}
	x, y := a.Manifest, b.Manifest
	return cmp.Or(cmp.Compare(y.Cut.Order, x.Cut.Order), cmp.Compare(y.Cut.Epoch, x.Cut.Epoch), cmp.Compare(y.steps(), x.steps()),
		cmp.Compare(x.rank(), y.rank()), y.Created.Compare(x.Created), cmp.Compare(a.Path, b.Path))
}

// HighestOrder is the highest order number of the checkpoints in a checkpoint's folder and
// in the folder above. After a restore of it, new cuts must have higher numbers. Folders
// that cannot be read are left out.
func HighestOrder(on FS, c *Checkpoint) (order uint64) {
	for _, folder := range []string{c.Folder(), Dir(c.Folder())} {
		all, err := Find(on, folder)
		if err != nil {
			continue
		}
		for i := range all {
			if m := all[i].Manifest; m != nil {
				order = max(order, m.Cut.Order)
			}
		}
	}
	return order
}

// steps are compared only if they were counted by the same process or group.
func (m *Manifest) steps() int64 {
	if m.Model == "shared" {
		return 0
	}
	return m.Step
}

func (m *Manifest) rank() uint32 {
	if m.Rank == nil {
		return 0
	}
	return *m.Rank
}

func boolean(later bool) int {
	if later {
		return 1
	}
	return -1
}

func inFolder(on FS, folder string, names []Name) (all []Checkpoint) {
	for _, n := range names {
		if !n.Folder && IsManifest(n.Name) {
			if c := read(on, Join(folder, n.Name)); !errors.Is(c.Err, fs.ErrNotExist) {
				all = append(all, c)
			}
		}
	}
	return all
}

// IsManifest reports whether a file of that name is a manifest.
func IsManifest(base string) bool {
	return base == FileName || strings.HasSuffix(base, "."+FileName) && !strings.HasPrefix(base, ".")
}

// Load reads one manifest.
func Load(on FS, path string) (*Manifest, error) {
	b, err := on.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func read(on FS, path string) Checkpoint {
	c := Checkpoint{Path: path}
	b, err := on.ReadFile(path)
	if err != nil {
		c.Err = err
		return c
	}
	c.Manifest, c.Err = Parse(b)
	switch {
	case c.Err == nil:
		c.Pin, c.Err = readPin(on, path)
	case errors.Is(c.Err, ErrNewer):
		if n := (&needs{}); decode(b, n) == nil {
			c.newer = n
		}
	}
	return c
}
