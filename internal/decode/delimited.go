package decode

import (
	"bytes"
	"fmt"
)

// split cuts a CSV or TSV record into fields, by the rules of encoding/csv
// (strict quotes, no trimming), with two differences. A line end inside quotes
// is kept as it is written (encoding/csv turns \r\n into \n). And what the
// source gave as one record is one record, whatever line ends are in it. all
// keeps every field in slots, in order (a header line). Without it, only the
// wanted fields are kept, each in the slot of its source.
func (d *Decoder) split(all bool) *fault {
	p, n := d.start, 0
	for {
		s, next, f := d.field(p)
		if f != nil {
			return f
		}
		switch {
		case all:
			d.slots = append(d.slots, s)
		case n < len(d.fieldSource) && d.fieldSource[n] >= 0:
			d.slots[d.fieldSource[n]] = s
		}
		n++
		if next > d.end {
			break
		}
		if p = next; !all && d.exact == 0 && n >= len(d.fieldSource) {
			break
		}
	}
	if all {
		return nil
	}
	want := max(d.exact, len(d.fieldSource))
	if n < want || (d.exact > 0 && n > want) {
		return d.fieldCount(n)
	}
	return nil
}

func (d *Decoder) fieldCount(n int) *fault {
	rec := d.buf[d.start:d.end]
	if d.exact > 0 && len(d.fieldNames) == d.exact {
		return &fault{value: rec, reason: fmt.Sprintf("has %d fields, and %d are named: is the delimiter %q right?", n, d.exact, d.delimiter)}
	}
	f := &fault{value: rec, at: len(rec), reason: fmt.Sprintf("has %d fields, and field %d is wanted (from 0): is the delimiter %q right?", n, len(d.fieldSource)-1, d.delimiter)}
	for _, c := range d.columns {
		for _, src := range c.sources {
			if p := d.sources[src].path; f.column == nil && p.Number >= n && d.isField(src) {
				f.column, f.source = c, src
			}
		}
	}
	return f
}

func (d *Decoder) isField(src int) bool {
	for _, s := range d.fieldSource {
		if int(s) == src {
			return true
		}
	}
	return false
}

// field reads the field at p. next is where the following field begins; it is beyond end
// if there is none.
func (d *Decoder) field(p int) (s slot, next int, f *fault) {
	if d.quote != 0 && p < d.end && d.buf[p] == d.quote {
		return d.quoted(p)
	}
	q := d.end
	if i := bytes.IndexByte(d.buf[p:d.end], d.delimiter); i >= 0 {
		q = p + i
	}
	if d.quote != 0 {
		if i := bytes.IndexByte(d.buf[p:q], d.quote); i >= 0 {
			return s, 0, &fault{at: p + i - d.start, value: d.buf[p:q], reason: fmt.Sprintf("a bare %c in a field that does not begin with one: quote the whole field and double it", d.quote)}
		}
	}
	return slot{start: int32(p), end: int32(q), kind: text}, q + 1, nil
}

// quoted reads the field whose opening quote is at p. Only a field with doubled
// quotes is copied.
func (d *Decoder) quoted(p int) (s slot, next int, f *fault) {
	from, copied := len(d.scratch), false
	at := p + 1
	for {
		i := bytes.IndexByte(d.buf[at:d.end], d.quote)
		if i < 0 {
			return s, 0, &fault{at: p - d.start, value: d.buf[p:d.end], reason: "the quote that opens here is never closed"}
		}
		q := at + i
		switch {
		case q+1 < d.end && d.buf[q+1] == d.quote:
			d.scratch = append(d.scratch, d.buf[at:q+1]...)
			copied, at = true, q+2
			continue
		case q+1 < d.end && d.buf[q+1] != d.delimiter:
			return s, 0, &fault{at: q + 1 - d.start, value: d.buf[p:min(d.end, q+8)], reason: fmt.Sprintf("%q follows a closing quote: a quote inside a quoted field is doubled", d.buf[q+1])}
		}
		if copied {
			d.scratch = append(d.scratch, d.buf[at:q]...)
			return slot{start: int32(from), end: int32(len(d.scratch)), kind: text, scratch: true}, q + 2, nil
		}
		return slot{start: int32(at), end: int32(q), kind: text}, q + 2, nil
	}
}
