package ckpt

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/view"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Removal is what `headrace ckpt rm` was asked for.
type Removal struct {
	On     On
	Keep   int     // remove all but the newest Keep of each folder; 0: the paths name checkpoints
	Ledger *Ledger // nil: no master was asked
	Watch  Watch   // of the verifications
}

// doomed is a checkpoint that was named for removal. It stays where stay gives a reason.
type doomed struct {
	c    *manifest.Checkpoint
	cuts []cut.ID // the ledger forgets them before the files go
	stay string
	gone bool  // there are no files: only the ledger knows the checkpoint
	step int64 // of one without files
}

// Chosen are the checkpoints that were named for removal, each with why it stays.
type Chosen []doomed

// Choose finds the checkpoints that paths name. The newest that verifies of a folder
// stays, and so does one that is pinned, that another needs, or that is the newest bound.
func (r *Removal) Choose(ctx context.Context, paths []string) (Chosen, error) {
	paths, gone := r.byCut(paths)
	wanted := map[string]bool{}
	var dirs []string
	for _, path := range paths {
		dir, err := r.want(path, wanted)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	var all Chosen
	done := map[string]bool{}
	for _, dir := range dirs {
		if done[dir] {
			continue
		}
		done[dir] = true
		here, err := r.inFolder(ctx, dir, wanted, done)
		if err != nil {
			return nil, err
		}
		all = append(all, here...)
	}
	return append(all, gone...), nil
}

// inFolder judges the wanted checkpoints of one folder among all that lie there. One
// whose cut the ledger has voided does not count as the newest, because it cannot be
// restored.
func (r *Removal) inFolder(ctx context.Context, dir string, wanted, done map[string]bool) (all Chosen, err error) {
	here, err := Find(r.On, dir)
	if err != nil {
		return nil, err
	}
	wants := func(i int) bool { return wanted[here[i].Path] }
	stay := manifest.Stay(here, wants, func(c *manifest.Checkpoint) bool {
		return r.Ledger.of(c.Manifest) != "voided" && Verifies(ctx, r.On, c, r.Watch) == nil
	})
	for i := range here {
		if _, already := stay[i]; !already && r.Ledger.newest(&here[i]) {
			stay[i] = "it is the newest that is bound"
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i := range here {
		if wants(i) && !done[here[i].Path] {
			done[here[i].Path] = true
			all = append(all, doomed{c: &here[i], cuts: r.Ledger.behind(&here[i]), stay: stay[i]})
		}
	}
	return all, nil
}

// want notes in wanted which checkpoints a path names, and returns their folder.
func (r *Removal) want(path string, wanted map[string]bool) (dir string, err error) {
	if r.Keep == 0 {
		c, err := Exactly(r.On, path)
		if err != nil {
			return "", err
		}
		wanted[c.Path] = true
		return folderOf(c), nil
	}
	if dir, err = absolute(path); err != nil {
		return "", err
	}
	all, err := Find(r.On, dir)
	if err != nil {
		return "", err
	}
	newer := map[string]int{}
	for i := range all {
		c := &all[i]
		if c.Err != nil {
			continue // half and damaged ones are removed by name only: a save may be going on
		}
		if r.Ledger.of(c.Manifest) == "voided" {
			wanted[c.Path] = true
			continue
		}
		owner := c.Manifest.Job + "/" + view.RankText(c.Manifest.Rank)
		if newer[owner]++; newer[owner] > r.Keep {
			wanted[c.Path] = true
		}
	}
	return dir, nil
}

// byCut takes the ids of cuts out of paths. If the checkpoint of a cut is there, its path
// stands in the id's place. If its files are gone, only the ledger forgets it.
func (r *Removal) byCut(paths []string) (rest []string, gone Chosen) {
	for _, path := range paths {
		id, err := cut.ParseID(path)
		if _, there := os.Lstat(path); err != nil || there == nil || r.Ledger == nil || r.Keep > 0 {
			rest = append(rest, path)
			continue
		}
		k, kept := r.Ledger.cuts[id]
		err = nil
		if k.Path != "" {
			_, err = r.On(k.Path).ReadFile(k.Path)
		}
		switch {
		case !kept:
			rest = append(rest, path)
		case k.Path != "" && !errors.Is(err, fs.ErrNotExist):
			rest = append(rest, k.Path)
		default:
			d := doomed{c: &manifest.Checkpoint{Path: cmp.Or(k.Path, path)}, cuts: []cut.ID{id}, gone: true, step: k.Step}
			if k.Newest {
				d.stay = "it is the newest that is bound: a restore must be able to say that its files are gone"
			}
			gone = append(gone, d)
		}
	}
	return rest, gone
}

// folderOf is the folder of checkpoints that a checkpoint lies in.
func folderOf(c *manifest.Checkpoint) string {
	if filepath.Base(c.Path) == manifest.FileName {
		return manifest.Dir(c.Folder())
	}
	return c.Folder()
}
