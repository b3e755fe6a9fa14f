package manifest

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headrace/headrace/shardsvc/cut"
)

// Validate says whether the manifest could be true. Errors: *cut.Error.
func (m *Manifest) Validate() error {
	v := &check{}
	v.text("job", m.Job, 1, 256)
	v.model(m.Model)
	v.that(m.Step >= 0, "step", "%d, must not be negative", m.Step)
	v.that(m.WorldSize >= 1, "world_size", "0, must be at least 1")
	v.that((m.Rank != nil) == (m.Model == "private"), "rank", "it is there for model private, and for no other")
	v.that(!m.Created.IsZero(), "created", "missing")
	v.that(len(m.Needs) <= 1024, "needs", "%d checkpoints, at most 1024", len(m.Needs))
	for i, id := range m.Needs {
		v.that(id != 0 && id != m.Cut.ID, at("needs", i), "%v is not another checkpoint", id)
	}
	v.files(m.Files)
	c := &m.Cut
	v.that(c.Job == m.Job, "cut.job", "%q, the checkpoint is of job %q", c.Job, m.Job)
	v.that(c.Model == m.Model, "cut.model", "%q, the checkpoint has model %q", c.Model, m.Model)
	v.that(c.Step == m.Step || m.Model == "shared", "cut.step", "%d, the checkpoint has step %d", c.Step, m.Step)
	v.that(m.Rank == nil || c.Rank == cut.Group || cut.Rank(*m.Rank) == c.Rank, "cut.rank", "it is of another rank than the checkpoint")
	if v.err != nil {
		return v.err
	}
	if wrong := c.Wrong(); wrong != nil {
		return wrong.In("cut")
	}
	return nil
}

// Validate says whether the part could be true. Errors: *cut.Error.
func (p *Part) Validate() error {
	v := &check{}
	v.that(p.Cut != 0, "cut", "missing")
	v.that(p.Step >= 0, "step", "%d, must not be negative", p.Step)
	v.that(p.Rank < p.WorldSize, "rank", "%d, must be below the world size %d", p.Rank, p.WorldSize)
	v.files(p.Files)
	return v.err
}

// check keeps the first thing that is wrong.
type check struct{ err error }

func (v *check) that(ok bool, field, reason string, args ...any) {
	if !ok && v.err == nil {
		v.err = &cut.Error{Kind: ErrInvalid, Field: field, Reason: fmt.Sprintf(reason, args...)}
	}
}

func (v *check) text(field, s string, least, most int) {
	v.that(len(s) >= least, field, "missing")
	v.that(len(s) <= most, field, "%d bytes long, at most %d", len(s), most)
	v.that(!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }), field, "%q has a control character", s)
}

func (v *check) model(model string) {
	v.that(slices.Contains([]string{"shared", "replicated", "private"}, model), "model", "%.40q: must be shared, replicated or private", model)
}

func (v *check) files(files []File) {
	v.that(len(files) <= MaxFiles, "files", "%d files, at most %d", len(files), MaxFiles)
	seen := make(map[string]bool, len(files))
	for i := range files {
		f := &files[i]
		field := at("files", i) + ".path"
		v.that(within(f.Path), field, "%.200q: must be a path below the checkpoint's folder, with slashes, without . and ..", f.Path)
		v.that(!ours(f.Path), field, "%q is a name of Headrace's own", f.Path)
		v.that(!seen[f.Path], field, "%q is there twice", f.Path)
		v.that(f.Size >= 0, at("files", i)+".size", "%d, must not be negative", f.Size)
		seen[f.Path] = true
		if v.err != nil {
			return
		}
	}
}

// within: a checkpoint's files lie in its folder, on every system. They are also read
// through os.Root, so symlinks cannot lead out.
func within(p string) bool {
	return p != "" && len(p) <= 4096 && p == path.Clean(p) && p != "." && filepath.IsLocal(p) && !strings.HasPrefix(p, "/") &&
		!strings.Contains(p, "\\") && !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// ours: manifests, their temporary files and pins, parts.
func ours(p string) bool {
	base := path.Base(p)
	return base == FileName || strings.Contains(base, "."+FileName) || strings.HasPrefix(base, FileName+".") || partName(base)
}

func at(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }
