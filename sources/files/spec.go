package files

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// Kind is what files can do.
var Kind = dataset.Kind{
	Kind: sources.Kind{
		Name: "files", Unit: "bytes", Paths: true, Backfills: true, End: sources.End{Field: "end", Never: endNever},
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
	Root      string       `json:"root"`       // absolute folder, or relative to the spec file (made absolute by the CLI); or s3://bucket/prefix
	Paths     []string     `json:"paths"`      // files, globs (** too) or folders under Root; default: everything in Root
	Verify    string       `json:"verify"`     // fast (default) | full
	MaxRecord dataset.Size `json:"max_record"` // default 16MiB
	// Compression: auto, "" (both: by the end of a file's name), none, gzip, zstd, bzip2.
	Compression string `json:"compression,omitempty"`
	// Connection is the operator's, for files on S3; "": what the environment says.
	Connection string `json:"connection,omitempty"`
	// End: never: files that come later are read too. "": those that are there.
	End      string           `json:"end,omitempty"`
	Refresh  dataset.Duration `json:"refresh,omitempty"`  // end: never: how often new files are looked for; default 2s, on S3 10s
	Complete string           `json:"complete,omitempty"` // end: never: rest (default; on S3 renamed) | success | renamed: which files are complete
	Rest     dataset.Duration `json:"rest,omitempty"`     // complete: rest: how long a file must not have changed; default 10s
	// Remember: names of files that came so long before the newest one are forgotten; 0: none.
	Remember dataset.Duration `json:"remember,omitempty"`
	Late     string           `json:"late,omitempty"` // with Remember: read (default) | skip: a name that sorts before forgotten ones
	// Retain: end: never: files that nothing needs any more are deleted after this time; 0: never.
	Retain dataset.Duration `json:"retain,omitempty"`
}

const (
	defaultRefresh   = dataset.Duration(2 * time.Second)
	defaultRefreshS3 = dataset.Duration(10 * time.Second)
	leastRefresh     = dataset.Duration(100 * time.Millisecond)
	defaultRest      = dataset.Duration(10 * time.Second)
	leastRemember    = dataset.Duration(time.Minute)
	leastRetain      = dataset.Duration(time.Second)
)

func (f *Spec) Kind() sources.Kind {
	k := Kind.Kind
	k.Rolls, k.Numbers, k.Forgets = f.live(), f.live(), f.live() && f.Remember > 0
	k.Deletes = f.live() && f.Retain > 0
	return k
}

func (f *Spec) Traits() dataset.Traits {
	t := dataset.Traits{Live: f.live(), Refresh: time.Duration(f.Refresh), MaxRecord: f.MaxRecord, DeletesAfter: time.Duration(f.Retain)}
	if f.Connection == "" { // else the operator says what may be read with it
		t.Folders = []string{f.Root}
	}
	return t
}

// Compatible: another root or other paths are other records.
func (f *Spec) Compatible(field string) bool {
	return field == "connection" || f.live() && slices.Contains([]string{"refresh", "complete", "rest", "remember", "late", "retain"}, field)
}

func (f *Spec) Fill() {
	if len(f.Paths) == 0 {
		f.Paths = []string{"."}
	}
	if !f.live() {
		return
	}
	refresh, complete := defaultRefresh, completeRest
	if f.remote() { // each look costs requests, and an object appears whole
		refresh, complete = defaultRefreshS3, completeRenamed
	}
	f.Refresh = cmp.Or(f.Refresh, refresh)
	if f.Complete = cmp.Or(f.Complete, complete); f.Complete == completeRest {
		f.Rest = cmp.Or(f.Rest, defaultRest)
	}
	if f.Remember > 0 {
		f.Late = cmp.Or(f.Late, lateRead)
	}
}

// Quick returns a spec that hashes no whole file, deletes none, and does not wait until a file
// of a folder that grows rests.
func (f *Spec) Quick() dataset.Part {
	quick := *f
	quick.Retain = 0
	if quick.Verify = "fast"; f.live() {
		quick.Complete = completeRenamed
	}
	return &quick
}

func (f *Spec) Members(r *dataset.Reader) []dataset.Member {
	return []dataset.Member{
		{Name: "root", Read: r.Text(&f.Root)},
		{Name: "connection", Read: r.Text(&f.Connection)},
		{Name: "paths", Read: r.Texts(&f.Paths)},
		{Name: "verify", Read: r.Text(&f.Verify)},
		{Name: "compression", Read: r.Text(&f.Compression)},
		{Name: "end", Read: r.Text(&f.End)},
		{Name: "refresh", Read: dataset.Parsed(r, &f.Refresh, dataset.ParseDuration)},
		{Name: "complete", Read: r.Text(&f.Complete)},
		{Name: "rest", Read: dataset.Parsed(r, &f.Rest, dataset.ParseDuration)},
		{Name: "remember", Read: dataset.Parsed(r, &f.Remember, dataset.ParseDuration)},
		{Name: "late", Read: r.Text(&f.Late)},
		{Name: "retain", Read: dataset.Parsed(r, &f.Retain, dataset.ParseDuration)},
		{Name: "max_record", Read: dataset.Parsed(r, &f.MaxRecord, dataset.ParseSize)},
	}
}

// checkURL checks the form only. The name of the bucket is checked when it is opened.
func (f *Spec) checkURL(c *dataset.Check) {
	rest := strings.TrimPrefix(f.Root, scheme)
	if bucket, _, _ := strings.Cut(rest, "/"); bucket == "" || strings.HasSuffix(rest, "/") || path.Clean(rest) != rest || strings.HasPrefix(rest, "..") {
		c.Fail("files.root", f.Root, "is not s3://BUCKET/PREFIX", "without a slash at its end, as in s3://lake/clicks")
	}
}

func (f *Spec) Check(c *dataset.Check, _ *dataset.Spec) {
	switch {
	case f.Root == "":
		c.Fail("files.root", "", "must be given: the folder that holds the files", "")
	case f.remote():
		f.checkURL(c)
	case strings.Contains(f.Root, "://"):
		c.Fail("files.root", f.Root, "is no place that files are read from", "write a folder, or s3://BUCKET/PREFIX")
	case f.Connection != "":
		c.Fail("files.connection", f.Connection, "is for files on S3", "remove it, or write root: s3://BUCKET/PREFIX")
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
	f.checkGrowing(c)
}

func (f *Spec) checkGrowing(c *dataset.Check) {
	if !f.live() {
		if f.End != "" {
			c.Fail("files.end", f.End, "is not known here", "never: files that come later are read too; without it, those that are there")
		}
		for _, m := range []struct {
			name string
			set  bool
		}{{"refresh", f.Refresh != 0}, {"complete", f.Complete != ""}, {"rest", f.Rest != 0}, {"remember", f.Remember != 0}, {"late", f.Late != ""}, {"retain", f.Retain != 0}} {
			if m.set {
				c.Fail("files."+m.name, "", "is for folders that grow", "remove it, or set end: never")
			}
		}
		return
	}
	if f.Refresh < leastRefresh {
		c.Fail("files.refresh", f.Refresh.String(), "is too often", "at least "+leastRefresh.String())
	}
	if c.Among("files.complete", f.Complete, completeRest, completeSuccess, completeRenamed) && f.Complete != completeRest && f.Rest != 0 {
		c.Fail("files.rest", f.Rest.String(), "goes with complete: rest", "remove one of them")
	}
	if f.Rest < 0 {
		c.Fail("files.rest", f.Rest.String(), "is negative", "")
	}
	f.checkRemember(c)
	if f.Retain != 0 && f.Retain < leastRetain {
		c.Fail("files.retain", f.Retain.String(), "is too short", "at least "+leastRetain.String()+"; a day or more is usual")
	}
}
