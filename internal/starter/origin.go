package starter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/dataset"
)

// origin is what DATA names.
type origin struct {
	name   string                               // for the dataset
	about  string                               // for people
	kind   string                               // of source
	fields []string                             // lines of the spec below the kind
	format string                               // by the names of files; "": they tell nothing
	file   string                               // one of the files, for people
	part   func(context.Context) (*part, error) // opens it
	topic  bool
	many   bool    // files, in a folder
	keyed  []keyed // folders key=value that files lie in
}

// suffixes of files with their formats, and suffixes of compressed files.
var (
	suffixes = map[string]string{".csv": "csv", ".tsv": "tsv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
		".parquet": "parquet", ".tfrecord": "tfrecord", ".tfrecords": "tfrecord", ".tfrec": "tfrecord",
		".tfrecord-*": "tfrecord", ".tfrecords-*": "tfrecord", ".txt": "", ".log": "", "": ""}
	packed = []string{".gz", ".gzip", ".zst", ".zstd", ".bz2"}
)

// IsData reports whether a file with this name can only be data. A .json file may be a setting.
func IsData(name string) bool {
	end := strings.ToLower(ending(name))
	for _, p := range packed {
		end = strings.TrimSuffix(end, p)
	}
	return suffixes[end] != "" && end != ".json"
}

// notYet has the schemes of places that are not read, with the command that copies the data here.
var notYet = map[string]string{
	"gs":   "gsutil -m rsync -r %s data",
	"hdfs": "hdfs dfs -get %s data", "http": "curl -LO %s", "https": "curl -LO %s",
}

func parseOrigin(ctx context.Context, data, folder string, by Openers) (*origin, error) {
	scheme, rest, isURL := strings.Cut(data, "://")
	if !isURL {
		return filesOrigin(ctx, data, folder)
	}
	if scheme == "s3" || scheme == "s3a" {
		return bucketOrigin(ctx, strings.Trim(rest, "/"), by)
	}
	if way, known := notYet[scheme]; known {
		return nil, advice.Usage.Errorf("copy it to this machine, `"+fmt.Sprintf(way, data)+"`, then `headrace init data`; a mounted folder works too",
			"%s: %s:// is not read yet", data, scheme)
	}
	u, err := url.Parse(data)
	if err != nil {
		return nil, advice.Usage.Errorf(forms(), "%s: %w", data, err)
	}
	topic := strings.Trim(u.Path, "/")
	if u.Host == "" || topic == "" {
		return nil, advice.Usage.Errorf(forms(), "%s: it needs a broker and a topic", data)
	}
	for _, k := range dataset.Kinds() {
		if k.Name == scheme && k.FromURL != nil {
			return &origin{name: safeName(path.Base(topic)), about: "topic " + topic, kind: scheme, topic: true,
				fields: k.FromURL(strings.Split(u.Host, ","), topic, u.Query())}, nil
		}
	}
	return nil, advice.Usage.Errorf(forms(), "%s: %s:// is not known here", data, scheme)
}

// forms are the forms of DATA, for a hint.
func forms() string {
	all := []string{"a file", "a folder", "s3://BUCKET/PREFIX"}
	for _, k := range dataset.Kinds() {
		if k.Address != "" {
			all = append(all, k.Address)
		}
	}
	return strings.Join(all, ", ")
}

// filesKind returns the kind of source that reads a folder, and the field that names the folder.
func filesKind() (name, field string) {
	for _, k := range dataset.Kinds() {
		if len(k.Folders) > 0 {
			return k.Name, k.Folders[0]
		}
	}
	return "", ""
}

// mostNames bounds the walk through a folder. So many names are enough to tell what it holds.
const mostNames = 20_000

// filesOrigin looks at a file, or at the names of a folder's files: the most frequent
// ending is what is read.
func filesOrigin(ctx context.Context, data, folder string) (*origin, error) {
	abs, err := filepath.Abs(data)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, advice.NotFound.Errorf(forms(), "%s: there is no such file or folder", data)
	case err != nil:
		return nil, err
	case !st.IsDir() && !st.Mode().IsRegular(): // a pipe can be read once only
		return nil, advice.Usage.Errorf("write what comes out of it into a file first", "%s is neither a file nor a folder", data)
	case !utf8.ValidString(abs):
		return nil, advice.Usage.Errorf("give it another name", "%q is no UTF-8, so no spec can name it", data)
	}
	kind, field := filesKind()
	o := &origin{name: safeName(strings.TrimSuffix(filepath.Base(abs), ending(abs))), about: data, kind: kind}
	root, one := abs, ""
	var names []string
	if !st.IsDir() {
		root, one = filepath.Dir(abs), filepath.Base(abs)
	} else if names, err = namesBelow(abs); err != nil {
		return nil, err
	} else if len(names) == 0 {
		return nil, advice.NotFound.Errorf("names that begin with . or _ are left out, and so are links to folders", "%s holds no file", data)
	}
	name, paths := o.files(names, one)
	o.file = filepath.Join(root, name)
	o.part = func(context.Context) (*part, error) { return openPart(o.file) }
	if err := o.say(ctx); err != nil {
		return nil, err
	}
	if rel, err := filepath.Rel(folder, root); err == nil && filepath.IsLocal(rel) {
		root = rel // the spec may be moved together with the data
	}
	o.fields = []string{field + ": " + plain(root)}
	if paths != "" {
		o.fields = append(o.fields, "paths: "+dataset.QuoteList([]string{paths}))
	}
	return o, nil
}

// files chooses what is read: the file one, or the names with the most frequent ending. It
// returns one of these names, and the pattern for the spec's `paths`; "": all files.
func (o *origin) files(names []string, one string) (name, paths string) {
	if one != "" {
		return one, one
	}
	o.many = len(names) > 1
	end := commonest(names)
	names = slices.DeleteFunc(names, func(n string) bool { return ending(n) != end })
	o.partitions(names)
	if end != "" {
		paths = "**/*" + end
	}
	return slices.Min(names), paths
}

// say finds the format by the file's name, or by how the file begins.
func (o *origin) say(ctx context.Context) error {
	if err := o.isContainer(ctx); err != nil {
		return err
	}
	end := strings.ToLower(ending(o.file))
	for _, p := range packed {
		end = strings.TrimSuffix(end, p)
	}
	if o.format = suffixes[end]; o.format == "" && isTFRecord(ctx, o.part) {
		o.format = "tfrecord"
	}
	return nil
}

func namesBelow(root string) (names []string, err error) {
	if root, err = filepath.EvalSymlinks(root); err != nil { // WalkDir would not enter a link
		return nil, err
	}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch base := d.Name(); {
		case err != nil:
			return err
		case len(names) == mostNames:
			return fs.SkipAll
		case p != root && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")):
			if d.IsDir() {
				return fs.SkipDir
			}
		case !d.IsDir():
			if st, err := os.Stat(p); err != nil || !st.Mode().IsRegular() { // of a link: what it leads to
				return err
			}
			rel, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			names = append(names, rel)
		}
		return nil
	})
	return names, err
}

// ending returns ".csv.gz" for day.csv.gz.
func ending(name string) string {
	base := filepath.Base(name)
	end := filepath.Ext(base)
	if shards, ok := tfrecordEnding(base); ok {
		return shards
	}
	if slices.Contains(packed, strings.ToLower(end)) {
		end = filepath.Ext(strings.TrimSuffix(base, end)) + end
	}
	if _, known := suffixes[strings.ToLower(strings.TrimSuffix(end, filepath.Ext(end)))]; !known && strings.Count(end, ".") > 1 {
		return filepath.Ext(base)
	}
	return end
}

// commonest returns the ending that most names have. If several have as many, it prefers one
// whose format is known.
func commonest(names []string) string {
	count := map[string]int{}
	for _, n := range names {
		count[ending(n)]++
	}
	best := ""
	for end, n := range count {
		if more, known := n > count[best], suffixes[strings.ToLower(end)] != ""; count[best] == 0 || more || n == count[best] && known {
			best = end
		}
	}
	return best
}

var notSafe = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// safeName makes a valid name of a dataset from the name of a file or topic.
func safeName(s string) string {
	s = strings.Trim(notSafe.ReplaceAllString(s, "-"), "-._")
	if len(s) > 60 {
		s = s[:60]
	}
	if s == "" {
		return "data"
	}
	return s
}
