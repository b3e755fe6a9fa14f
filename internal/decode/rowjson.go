package decode

import (
	"encoding/base64"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// A row of columns has no bytes of its own. A dead letter has it as a JSON object, in which
// the paths of the spec lead to the same values. Example: of the paths id and /items/*/price
// it is {"id":7,"items":[{"price":1.5},{"price":null}]}.

// RowJSON is a row of batch as JSON. It has the fields that the columns and event_time of the
// spec name, as far as the file has them, also those of columns that were not asked for. It
// returns the first bytes, at most `most`, and the size of the whole.
//
//   - What is null in the file is null.
//   - Bytes that are not UTF-8 are {"base64": "..."}. A float that is no number is "NaN",
//     "+Inf" or "-Inf".
//   - A time is the number that a column gets. If only event_time names it, it is RFC 3339.
//   - A list of lists is one flat list, as a column gets it.
func (d *Decoder) RowJSON(batch *sources.Batch, row, most int) (value []byte, size int64) {
	numbers, doubles := map[string]bool{}, map[string]bool{} // paths of columns, and of those that are float64
	decode := &d.spec.Decode
	for i := range decode.Columns {
		paths, _ := decode.Columns[i].ExpandPaths(decode.Format) // a spec is checked before it is used
		for k := range paths {
			path := paths[k].String()
			numbers[path] = true
			doubles[path] = doubles[path] || decode.Columns[i].DType == "float64"
		}
	}
	w, root := rowWriter{out: clipped{most: most}, of: make([]rowSource, len(batch.Columns))}, &field{}
	for i := range batch.Columns {
		col, s := &batch.Columns[i], &w.of[i]
		path, err := dataset.ParsePath(decode.Format, col.Path)
		if err != nil || col.Absent {
			continue
		}
		*s = rowSource{feed: feed{col: col}, slots: 1, time: col.TicksPerSecond != 0 && !numbers[col.Path], double: doubles[col.Path]}
		s.feed.pass(row)
		if col.List {
			s.slots = int(col.Ends[row]) - s.feed.slot
		}
		root.add(i, &path)
		for _, star := range path.Stars {
			if star {
				s.stars++
			}
		}
	}
	w.put(root, 0)
	return w.out.first, w.out.size
}

// field is a place in the row that paths lead to or through.
type field struct {
	name   string
	fields []*field
	star   *field // every element of a list
	below  []int  // sources whose paths go through here or end here
	ends   bool   // below has one source, and its path ends here
}

// add makes the way of a path to source i.
func (f *field) add(i int, path *dataset.Path) {
	f.below = append(f.below, i)
	for k, token := range path.Tokens {
		next := f.star
		if !path.Stars[k] {
			at := slices.IndexFunc(f.fields, func(g *field) bool { return g.name == token })
			if at < 0 {
				at = len(f.fields)
				f.fields = append(f.fields, &field{name: token})
			}
			next = f.fields[at]
		} else if next == nil {
			next = &field{}
			f.star = next
		}
		next.below = append(next.below, i)
		f = next
	}
	f.ends = true
}

// rowSource is what the row has of one column.
type rowSource struct {
	feed  feed // at the slot that is written next
	slots int
	stars int
	skip  int  // > 0: elements of lists around what is written now have nothing of it
	time  bool // only event_time names it
	// double: a column of float64 names it. A float32 is then written with the digits of the
	// float64 that it becomes.
	double bool
}

type rowWriter struct {
	of  []rowSource
	out clipped
}

// put writes what is at f. stars is the number of * on the way there.
func (w *rowWriter) put(f *field, stars int) {
	switch {
	case f.ends:
		w.value(&w.of[f.below[0]])
	case f.star != nil:
		w.list(f.star, stars+1)
	default:
		w.out.text("{")
		first := true
		for _, child := range f.fields {
			if !slices.ContainsFunc(child.below, func(i int) bool { return w.of[i].skip == 0 }) {
				continue
			}
			if !first {
				w.out.text(",")
			}
			first = false
			w.out.quoted([]byte(child.name))
			w.out.text(":")
			w.put(child, stars)
		}
		w.out.text("}")
	}
}

// list writes a list whose elements are at f. All values of a list of lists are in the first
// element of the outer one.
func (w *rowWriter) list(f *field, stars int) {
	elements := func(s *rowSource) int {
		switch {
		case s.skip > 0:
			return 0
		case s.stars == stars:
			return s.slots
		}
		return min(s.slots, 1)
	}
	count := 0
	for _, i := range f.below {
		count = max(count, elements(&w.of[i]))
	}
	w.out.text("[")
	for e := range count {
		if e > 0 {
			w.out.text(",")
		}
		for _, i := range f.below { // a source that has no such element is skipped in it
			if s := &w.of[i]; s.skip > 0 || e >= elements(s) {
				s.skip++
			}
		}
		w.put(f, stars)
		for _, i := range f.below {
			if s := &w.of[i]; s.skip > 0 {
				s.skip--
			}
		}
	}
	w.out.text("]")
}

// value writes the next slot of s.
func (w *rowWriter) value(s *rowSource) {
	f := &s.feed
	if len(f.col.Valid) > 0 && f.col.Valid[f.slot] == 0 {
		w.out.text("null")
		f.slot++
		return
	}
	v := f.excerpt(f.value)
	if s.double && f.col.Kind == sources.Float32Values {
		v = f.float32Text(f.value, 64)
	}
	ms, isTime := int64(0), false
	if s.time {
		ms, isTime = f.time(f.value)
	}
	f.slot++
	f.value++
	switch {
	case isTime:
		w.out.quoted([]byte(time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.999Z07:00")))
	case f.col.Kind == sources.BoolValues:
		w.out.add(v)
	case f.col.Kind == sources.BytesValues && !utf8.Valid(v):
		w.out.text(`{"base64":"`)
		for len(v) > 0 {
			n := min(len(v), 3<<10)
			w.out.text(base64.StdEncoding.EncodeToString(v[:n]))
			v = v[n:]
		}
		w.out.text(`"}`)
	case f.col.Kind == sources.BytesValues, v[len(v)-1] > '9': // or a float that is no number
		w.out.quoted(v)
	default:
		w.out.add(v)
	}
}

// clipped keeps the first bytes of what is written, and counts all of it.
type clipped struct {
	first []byte
	most  int
	size  int64
}

func (c *clipped) add(b []byte) {
	c.size += int64(len(b))
	c.first = append(c.first, b[:min(len(b), c.most-len(c.first))]...)
}

func (c *clipped) text(s string) { c.add([]byte(s)) }

// quoted writes UTF-8 as a JSON string.
func (c *clipped) quoted(v []byte) {
	const hex = "0123456789abcdef"
	c.text(`"`)
	from := 0
	for i, b := range v {
		if b >= ' ' && b != '"' && b != '\\' {
			continue
		}
		c.add(v[from:i])
		from = i + 1
		switch b {
		case '"', '\\':
			c.add([]byte{'\\', b})
		case '\n':
			c.text(`\n`)
		case '\r':
			c.text(`\r`)
		case '\t':
			c.text(`\t`)
		default:
			c.add([]byte{'\\', 'u', '0', '0', hex[b>>4], hex[b&15]})
		}
	}
	c.add(v[from:])
	c.text(`"`)
}
