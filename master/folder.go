package master

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// folderEvery is how often a master checks that its state folder is still there.
const folderEvery = time.Second

// folders has the state folder and the store in it, as they were when the master began.
type folders map[string]fs.FileInfo

func (m *Master) folders() (folders, error) {
	all := folders{}
	for _, path := range []string{m.cfg.State, filepath.Join(m.cfg.State, storeFolder)} {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("state folder: %w", err)
		}
		all[path] = info
	}
	return all, nil
}

// watch returns an error as soon as a folder was removed or replaced. The store's files are
// still open then, and writes to them succeed, but the next master would not find them. If a
// folder cannot be looked at, for example on a network file system that hangs, watch goes
// on: the store itself reports writes that fail.
func (f folders) watch(ctx context.Context) error {
	look := time.NewTicker(folderEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		for path, was := range f {
			now, err := os.Stat(path)
			what := "was replaced by another one"
			switch {
			case err == nil && os.SameFile(was, now):
				continue
			case os.IsNotExist(err):
				what = "was removed"
			case err != nil:
				continue
			}
			return fmt.Errorf("%s %s while the master ran, and nothing that it stores would survive: the master ends. "+
				"Put the folder back and start the master again. Without it, start one with an empty state folder and apply the datasets: "+
				"trainers then go on from their newest checkpoint", path, what)
		}
	}
}
