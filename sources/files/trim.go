package files

import (
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
)

// trimmer keeps the restart points of all files that share a cache folder below a limit.
// Each Source has its own and trims after what it has added itself, so that together they
// may be above the limit by a share of it each.
type trimmer struct {
	cache string // "": points are kept in memory
	limit int64
	added atomic.Int64 // since the last trim
}

const (
	// cacheLimit is how much the points of all files may take, about 100 GB of content.
	cacheLimit = 1 << 30
	// trimShare: a Source trims when it has added this share of the limit, 32 MiB.
	trimShare = 32
	// usedEvery is how often a folder of points is marked as used.
	usedEvery    = time.Minute
	pointsFolder = "points"
)

// grew counts n bytes of points that were stored.
func (t *trimmer) grew(n int64) {
	if n == 0 || t.added.Add(n) < t.limit/trimShare {
		return
	}
	t.trim()
}

// onDisk is how much of the disk a file of n bytes takes, about.
func onDisk(n int64) int64 {
	const block = 4 << 10
	return (n + block - 1) / block * block
}

// trim deletes the points of the files that were used longest ago, if all of them take more
// than the limit. Adding points and beginning at one are uses; each sets the folder's time.
// Errors are ignored: a later call tries again.
func (t *trimmer) trim() {
	t.added.Store(0)
	if t.cache == "" {
		return
	}
	type kept struct {
		name  string
		used  time.Time
		bytes int64
	}
	folder := filepath.Join(t.cache, pointsFolder)
	var all []kept
	total := int64(0)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, e := range entries {
		if _, err := hex.DecodeString(e.Name()); err != nil {
			continue
		}
		k := kept{name: filepath.Join(folder, e.Name())}
		if info, err := e.Info(); err == nil {
			k.used = info.ModTime()
		}
		_ = filepath.WalkDir(k.name, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil
			}
			if info, err := d.Info(); err == nil {
				k.bytes += onDisk(info.Size())
			}
			return nil
		})
		total += k.bytes
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b kept) int { return a.used.Compare(b.used) })
	for _, k := range all {
		if total <= t.limit {
			return
		}
		total -= k.bytes
		_ = os.RemoveAll(k.name)
	}
}
