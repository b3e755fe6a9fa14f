package files

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// Kind is what files can do. Nothing deletes them but people.
var Kind = dataset.Kind{
	Kind: sources.Kind{
		Name: "files", Unit: "bytes",
		Sizes: sources.Sizes{Block: 256 << 10, Initial: 256 << 10, Min: 16 << 10, Max: 1 << 30},
		Rows:  sources.Sizes{Block: 64 << 10, Initial: 64 << 10, Min: 4 << 10, Max: 1 << 30},
	},
	Example: "files: {root: /data/clicks}",
	Folders: []string{"root"},
	New:     func() dataset.Part { return &Spec{Verify: "fast", MaxRecord: 16 << 20} },
	Open:    openSpec,
}

// Spec: Root must lie under one of the roots that master and agents allow.
type Spec struct {
	Root      string       `json:"root"`       // absolute folder, or relative to the spec file (made absolute by the CLI)
	Paths     []string     `json:"paths"`      // files, globs (** too) or folders under Root; default: everything in Root
	Verify    string       `json:"verify"`     // fast (default) | full
	MaxRecord dataset.Size `json:"max_record"` // default 16MiB
	// Compression: auto, "" (both: by the end of a file's name), none, gzip, zstd, bzip2.
	Compression string `json:"compression,omitempty"`
}

func (f *Spec) Kind() sources.Kind { return Kind.Kind }

func (f *Spec) Traits() dataset.Traits {
	return dataset.Traits{MaxRecord: f.MaxRecord, Folders: []string{f.Root}}
}

// Compatible: another root or other paths are other records.
func (f *Spec) Compatible(string) bool { return false }

func (f *Spec) Fill() {
	if len(f.Paths) == 0 {
		f.Paths = []string{"."}
	}
}

// Quick does not hash whole files.
func (f *Spec) Quick() dataset.Part {
	quick := *f
	quick.Verify = "fast"
	return &quick
}

func (f *Spec) Members(r *dataset.Reader) []dataset.Member {
	return []dataset.Member{
		{Name: "root", Read: r.Text(&f.Root)},
		{Name: "paths", Read: r.Texts(&f.Paths)},
		{Name: "verify", Read: r.Text(&f.Verify)},
		{Name: "compression", Read: r.Text(&f.Compression)},
		{Name: "max_record", Read: dataset.Parsed(r, &f.MaxRecord, dataset.ParseSize)},
	}
}

func (f *Spec) Check(c *dataset.Check, _ *dataset.Spec) {
	switch {
	case f.Root == "":
		c.Fail("files.root", "", "must be given: the folder that holds the files", "")
	case !path.IsAbs(f.Root):
		c.Fail("files.root", f.Root, "is relative", "write an absolute path (only `headrace` commands that read a spec's file take it as relative to that file)")
	case strings.ContainsRune(f.Root, 0):
		c.Fail("files.root", f.Root, "holds a zero byte", "")
	}
	for i, p := range f.Paths {
		at := fmt.Sprintf("files.paths[%d]", i)
		switch {
		case p == "":
			c.Fail(at, "", "is empty", `use "." for the whole root`)
		case path.IsAbs(p):
			c.Fail(at, p, "is absolute", "paths lie under files.root and are relative to it")
		case slices.Contains(strings.Split(p, "/"), ".."):
			c.Fail(at, p, "leaves files.root", "paths lie under files.root and are relative to it")
		case strings.ContainsRune(p, 0):
			c.Fail(at, p, "holds a zero byte", "")
		default:
			if _, err := path.Match(p, ""); err != nil {
				c.Fail(at, p, "is not a glob pattern", "a [ needs its ]; write \\[ for the character itself")
			}
		}
	}
	c.Among("files.verify", f.Verify, "fast", "full")
	if f.Compression != "" {
		c.Among("files.compression", f.Compression, "auto", "none", "gzip", "zstd", "bzip2")
	}
	c.MaxRecord("files.max_record", f.MaxRecord)
}
