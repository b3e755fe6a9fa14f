package starter

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/decode"
)

// keyed is a folder key=value that files lie in.
type keyed struct {
	key    string
	values []string // one for each file that lies in such a folder
	files  int      // how many files there are
}

// partitions finds the folders key=value in the paths of files, in their order.
func (o *origin) partitions(names []string) {
	for _, name := range names {
		for folder := range strings.SplitSeq(path.Dir(filepath.ToSlash(name)), "/") {
			key, _, ok := strings.Cut(folder, "=")
			if ok && key != "" && !slices.ContainsFunc(o.keyed, func(k keyed) bool { return k.key == key }) {
				o.keyed = append(o.keyed, keyed{key: key, files: len(names)})
			}
		}
	}
	for i := range o.keyed {
		k := &o.keyed[i]
		for _, name := range names {
			if v, ok := decode.PartitionValue(filepath.ToSlash(name), k.key); ok {
				k.values = append(k.values, v)
			}
		}
	}
}

// column makes a column of the values in the paths. i is its number.
func (k *keyed) column(i int) (c column, ok bool) {
	f := &field{name: k.key, path: "$path." + k.key}
	for _, v := range k.values {
		f.seen.text(v)
	}
	f.seen.total, f.seen.missing = k.files, k.files-f.seen.there()
	c, ok = columnOf(f, i)
	if k.dates() {
		c.dtype, c.role, c.buckets = "string", text, 0
	}
	c.comment = "from the folder " + k.key + "=..."
	if f.seen.missing > 0 {
		if c.comment += ", which not all files lie in"; c.dtype == "string" {
			c.fill = `""`
		}
	}
	return c, ok
}

// dates reports whether all values are dates. A date is no number to learn from.
func (k *keyed) dates() bool {
	return !slices.ContainsFunc(k.values, func(v string) bool {
		_, err := time.Parse(time.DateOnly, v)
		return err != nil
	})
}
