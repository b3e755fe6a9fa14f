package decode

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headrace/headrace/internal/dataset"
)

// Values of a file's path ($path.dt of dt=2026-11-22/part-0.parquet) are the same for all of
// its records. They are converted once for each file, and written for all rows of an Append
// at once.

// fromPath is the columns whose values a file's path says, and the file that is read.
type fromPath struct {
	columns []*pathColumn
	timeKey string // of the event time; "": it is not in the path
	time    int64

	known bool
	path  string
	size  int // bytes of text that a row takes

	row int // of the builder: the first one that has no values yet
}

// pathColumn is a column with its value in the file that is read.
type pathColumn struct {
	*column
	bits    uint64
	text    []byte
	present byte
	bad     bool // on_error: default: the value cannot be read
}

func (p *fromPath) wanted() bool { return len(p.columns) > 0 || p.timeKey != "" }

var errNoPath = errors.New("decode: columns take values of the file's path, and no file was named")

// hiveNull is the name that Hive, Spark and others give the folder of rows whose value is null.
const hiveNull = "__HIVE_DEFAULT_PARTITION__"

// In says that the records that are appended from now on lie in the file at path, which is
// relative to the root. The path is looked at only if it is another one than before. An
// error means that the path does not say what the spec's columns need; it names no file.
func (d *Decoder) In(path string) error {
	p := &d.fromPath
	if !p.wanted() || p.known && p.path == path {
		return nil
	}
	p.known, p.size = false, 0
	for _, c := range p.columns {
		if err := d.setFromPath(c, path); err != nil {
			return err
		}
		p.size += len(c.text)
	}
	if p.timeKey != "" {
		if err := d.timeFromPath(path); err != nil {
			return err
		}
	}
	p.known, p.path = true, path
	return nil
}

// setFromPath converts the value of one column.
func (d *Decoder) setFromPath(c *pathColumn, path string) error {
	c.bits, c.text, c.present, c.bad = c.defaultBits, c.defaultBytes, 0, false
	value, found := PartitionValue(path, c.key)
	if !found || value == "" && (c.hasDefault || c.mask || c.hash == nil && !c.column.text()) {
		if c.hasDefault || c.mask {
			return nil
		}
		return fmt.Errorf("column %s ($path.%s): %s; correct the path, or give the column a default or missing: mask", c.name, c.key, lacks(path, c.key))
	}
	reason := d.readFromPath(c, value)
	if reason == "" {
		c.present = 1
		return nil
	}
	if c.bad = d.lenient; !c.bad {
		return fmt.Errorf("column %s ($path.%s): %q: %s; correct the folder's name or the column's dtype, or set decode.on_error: default", c.name, c.key, excerpt([]byte(value)), reason)
	}
	c.bits, c.text = c.defaultBits, c.defaultBytes
	return nil
}

// lacks says why a path has no value of key.
func lacks(path, key string) string {
	folder := ""
	for f := range folders(path) {
		if k, _, ok := strings.Cut(f, "="); ok && unescapePath(k) == key {
			folder = f
		}
	}
	if folder != "" {
		return fmt.Sprintf("folder %s has no value", folder)
	}
	return fmt.Sprintf("the file lies in no folder %s=...", key)
}

// readFromPath sets the value, or says what is wrong with it.
func (d *Decoder) readFromPath(c *pathColumn, value string) (reason string) {
	switch {
	case c.column.text():
		if c.dtype == dataset.String && !utf8.ValidString(value) {
			return "is not UTF-8; use dtype: bytes"
		}
		c.text = []byte(value)
	case c.hash != nil:
		c.bits = uint64(c.hash.bytes([]byte(value)))
	default:
		if c.bits, reason = c.parse([]byte(value)); reason == "" {
			return ""
		}
		if n, ok := c.dateOf(value); ok {
			c.bits, reason = c.parse(fmt.Append(nil, n))
		}
	}
	return reason
}

// dateOf returns a date as days since 1970, as in Parquet, and a time as ms since 1970.
func (c *pathColumn) dateOf(value string) (n int64, ok bool) {
	if c.dtype != dataset.Int32 && c.dtype != dataset.Int64 {
		return 0, false
	}
	if t, err := time.Parse(time.DateOnly, value); err == nil {
		return t.Unix() / 86400, true
	}
	return timeOf(value)
}

// timeOf reads a date or a time as Hive and Spark write them in a folder's name, or RFC 3339:
// ms since 1970. A time without a zone is UTC.
func timeOf(value string) (ms int64, ok bool) {
	for _, form := range []string{time.DateOnly, time.DateTime, "2006-01-02T15:04:05", time.RFC3339Nano, "2006-01-02-15", "2006-01-02 15:04"} {
		if t, err := time.Parse(form, value); err == nil {
			return t.UnixMilli(), true
		}
	}
	return 0, false
}

// timeFromPath sets the event time of the file's records.
func (d *Decoder) timeFromPath(path string) error {
	p := &d.fromPath
	p.time = 0
	value, found := PartitionValue(path, p.timeKey)
	if !found || value == "" {
		return nil
	}
	ok := false
	if len(value) == 8 { // 20261122 is a date, and no second of the year 1970
		if t, err := time.Parse("20060102", value); err == nil {
			p.time, ok = t.UnixMilli(), true
		}
	}
	if !ok {
		p.time, ok = timeOf(value)
	}
	if !ok {
		p.time, ok = parseTime([]byte(value))
	}
	if !ok && !d.lenient {
		return fmt.Errorf("event_time ($path.%s): %q is not a time; it takes a date, ms or s since 1970, or RFC 3339", p.timeKey, excerpt([]byte(value)))
	}
	return nil
}

// putFromPath writes the path's values into the rows before to that do not have them yet.
func (d *Decoder) putFromPath(b *Builder, to int) {
	p := &d.fromPath
	for _, c := range p.columns {
		col := &b.Columns[c.index]
		for row := p.row; row < to; row++ {
			if c.column.text() {
				col.Values = append(col.Values, c.text...)
				col.RowOffsets[row+1] = int64(len(col.Values))
			} else {
				putBits(col.Values, c.size, row, c.bits)
			}
			c.putMask(col.Mask, row, c.present)
		}
		if c.bad && to > p.row {
			c.errors += uint64(to - p.row)
		}
	}
	if p.timeKey != "" {
		for row := p.row; row < to; row++ {
			b.Times[row] = p.time
		}
	}
	p.row = max(p.row, to)
}

// truncate is b.Truncate, which reads where each row ends.
func (d *Decoder) truncate(b *Builder, row int) {
	d.putFromPath(b, row)
	b.Truncate(row)
}

// PartitionValue returns what the folders key=value of a file's path say of key. If several do, the one
// that is nearest to the file counts. Null is not found.
func PartitionValue(path, key string) (value string, found bool) {
	for f := range folders(path) {
		k, v, ok := strings.Cut(f, "=")
		if ok && unescapePath(k) == key {
			value, found = unescapePath(v), v != hiveNull
		}
	}
	if !found {
		return "", false
	}
	return value, true
}

// folders are the names of the folders that a file lies in, the outermost first.
func folders(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for {
			folder, rest, more := strings.Cut(path, "/")
			if !more || !yield(folder) {
				return
			}
			path = rest
		}
	}
}

// unescapePath takes out %3A and the like, which Hive and Spark write for characters that
// do not go with a folder's name. A % that two hexadecimal digits do not follow stays.
func unescapePath(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			high, low := unhex(s[i+1]), unhex(s[i+2])
			if high >= 0 && low >= 0 {
				out = append(out, byte(high<<4|low))
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
