package files

import (
	"errors"
	"io/fs"
	"path"
	"strings"
)

func hasMeta(p string) bool { return strings.ContainsAny(p, `*?[\`) }

// glob adds what a pattern matches below dir, one part between slashes after
// the other. ** stands for any number of folders, none included. A folder that
// matches is taken with all that lies in it.
func (x *expander) glob(dir string, parts []string) error {
	key := dir + "\x00" + strings.Join(parts, "/")
	if _, again := x.seen[key]; again {
		return nil
	}
	x.seen[key] = struct{}{}
	if err := x.ctx.Err(); err != nil || x.past(dir) {
		return err
	}
	part, rest := parts[0], parts[1:]
	if part == "**" {
		return x.anyDepth(dir, rest)
	}
	if !hasMeta(part) {
		return x.matched(path.Join(dir, part), rest)
	}
	entries, err := x.src.readDir(dir)
	if err != nil {
		return x.src.fileError(dir, err)
	}
	for _, e := range entries {
		if e.Name()[0] == '.' && part[0] != '.' {
			continue
		}
		if ok, err := path.Match(part, e.Name()); err != nil {
			return x.src.fileError(part, err)
		} else if !ok {
			continue
		}
		if err := x.matched(path.Join(dir, e.Name()), rest); err != nil {
			return err
		}
	}
	return nil
}

// matched: p fits the pattern so far.
func (x *expander) matched(p string, rest []string) error {
	info, err := x.src.root.Stat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return x.src.fileError(p, err)
	}
	if len(rest) == 0 {
		return x.entry(p, info, nil)
	}
	if !info.IsDir() {
		return nil
	}
	return x.glob(p, rest)
}

func (x *expander) anyDepth(dir string, rest []string) error {
	if len(rest) == 0 {
		return x.matched(dir, nil)
	}
	if err := x.glob(dir, rest); err != nil {
		return err
	}
	entries, err := x.src.readDir(dir)
	if err != nil {
		return x.src.fileError(dir, err)
	}
	for _, e := range entries {
		// Links to folders are not followed here: a link upward would match for ever.
		if !e.IsDir() || hidden(e.Name()) {
			continue
		}
		if err := x.glob(path.Join(dir, e.Name()), append([]string{"**"}, rest...)); err != nil {
			return err
		}
	}
	return nil
}
