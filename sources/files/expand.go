package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/headrace/headrace/internal/dataset"
)

// expander turns files.paths into a sorted list of files without repeats.
type expander struct {
	ctx   context.Context
	src   *Source
	found map[string]struct{}
	hits  int // files met, repeats counted
	// seen has the (folder, rest of the pattern) pairs that were done. A pattern with more than
	// one ** comes to some of them again.
	seen map[string]struct{}
	look *look // through a folder that grows; nil: every name is wanted
}

// expand lists every file of the spec, by path relative to the root, in byte
// order. A path or pattern that names nothing is an error.
func (s *Source) expand(ctx context.Context) ([]string, error) { return s.expandFrom(ctx, nil) }

// expandFrom is expand without the names that a look skips.
func (s *Source) expandFrom(ctx context.Context, l *look) ([]string, error) {
	x := &expander{ctx: ctx, src: s, found: map[string]struct{}{}, look: l}
	for _, p := range s.spec.Paths {
		clean := path.Clean(p)
		matched, err := x.path(clean)
		if err != nil {
			return nil, err
		}
		if !matched && !s.spec.live() {
			return nil, s.nothing(clean)
		}
	}
	all := make([]string, 0, len(x.found))
	for name := range x.found {
		all = append(all, name)
	}
	slices.Sort(all)
	return all, nil
}

// nothing explains a path that names no file.
func (s *Source) nothing(p string) error {
	if info, err := s.root.Stat(p); err == nil && info.IsDir() {
		return fmt.Errorf("%s: folder %s holds no file: %w", s.partition, path.Join(s.spec.Root, p), fs.ErrNotExist)
	}
	if hasMeta(p) {
		return fmt.Errorf("%s: files.paths %q matches no file in %s: %w", s.partition, p, s.spec.Root, fs.ErrNotExist)
	}
	hint := ""
	if entries, err := s.readDir(path.Dir(p)); err == nil {
		names := make([]string, len(entries))
		for i, e := range entries {
			names[i] = e.Name()
		}
		if near := dataset.Nearest(path.Base(p), names); near != "" {
			hint = fmt.Sprintf(" (did you mean %s?)", path.Join(path.Dir(p), near))
		}
	}
	return fmt.Errorf("%s: there is no file %s in %s%s: %w", s.partition, p, s.spec.Root, hint, fs.ErrNotExist)
}

// path adds what one entry of files.paths names. A name that exists is taken
// literally, whatever characters it has.
func (x *expander) path(p string) (matched bool, err error) {
	info, err := x.src.root.Stat(p)
	switch {
	case err == nil:
		before := x.hits
		err = x.entry(p, info, nil)
		return x.hits > before, err
	case !errors.Is(err, fs.ErrNotExist):
		return false, x.src.fileError(p, err)
	case !hasMeta(p):
		return false, nil
	}
	x.seen = map[string]struct{}{}
	before := x.hits
	err = x.glob(".", strings.Split(p, "/"))
	return x.hits > before, err
}

// entry adds a file, or all that lies in a folder.
func (x *expander) entry(p string, info fs.FileInfo, above []fs.FileInfo) error {
	if info.IsDir() {
		return x.folder(p, info, above)
	}
	if !info.Mode().IsRegular() {
		return x.src.fileError(p, notRegular(info.Mode()))
	}
	return x.add(p)
}

func (x *expander) add(p string) error {
	x.hits++
	if x.look != nil {
		wanted, err := x.look.wants(p, func() (sighting, error) { return x.src.see(x.ctx, p) })
		if !wanted || err != nil {
			return err
		}
	}
	x.found[p] = struct{}{}
	return nil
}

// past reports whether the look skips all that lies in a folder.
func (x *expander) past(dir string) bool {
	return x.look != nil && !x.look.whole && beforeLow(dir, x.src.list.growing.low.Name)
}

// folder walks down. Links are followed as long as they stay in the root; above
// are the folders on the way, so that a link back to one of them is found.
func (x *expander) folder(p string, info fs.FileInfo, above []fs.FileInfo) error {
	if err := x.ctx.Err(); err != nil {
		return err
	}
	if slices.ContainsFunc(above, func(a fs.FileInfo) bool { return os.SameFile(a, info) }) {
		return x.src.fileError(p, errors.New("is a symbolic link to a folder that it lies in"))
	}
	if x.past(p) {
		return nil
	}
	entries, err := x.src.readDir(p)
	if err != nil {
		return x.src.fileError(p, err)
	}
	above = append(above[:len(above):len(above)], info)
	for _, e := range entries {
		if hidden(e.Name()) {
			continue
		}
		name := path.Join(p, e.Name())
		if e.Type().IsRegular() {
			if err := x.add(name); err != nil {
				return err
			}
			continue
		}
		below, err := x.src.root.Stat(name)
		if x.look != nil && errors.Is(err, fs.ErrNotExist) { // a link whose file was removed, or is not there yet
			continue
		}
		if err != nil {
			return x.src.fileError(name, err)
		}
		if err := x.entry(name, below, above); err != nil {
			return err
		}
	}
	return nil
}

// hidden names are left out of folders, as other readers do: .crc files,
// _SUCCESS, _temporary.
func hidden(name string) bool { return name[0] == '.' || name[0] == '_' }

func (s *Source) readDir(p string) ([]fs.DirEntry, error) {
	f, err := s.root.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}
