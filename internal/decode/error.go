package decode

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Error says which record cannot be decoded and why. The caller knows dataset and file and
// adds them.
type Error struct {
	Record  int    // index in the batch
	Offset  int64  // of the record in its segment
	Column  string // "" when the record as a whole is at fault
	Path    string // the column's path: a field's number or name, a JSON Pointer, $key
	At      int    // byte in the record
	Value   string // excerpt
	Reason  string
	Missing bool // there is no value (rather than a bad one)
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "record at offset %d", e.Offset)
	if e.Column != "" {
		fmt.Fprintf(&b, ", column %s (%s)", e.Column, e.Path)
	}
	fmt.Fprintf(&b, ", byte %d", e.At)
	if !e.Missing {
		fmt.Fprintf(&b, ": %q", e.Value)
	}
	b.WriteString(": " + e.Reason)
	return b.String()
}

const excerptSize = 60

func excerpt(b []byte) string {
	if len(b) <= excerptSize {
		return string(b)
	}
	cut := excerptSize
	for cut > excerptSize-utf8.UTFMax && !utf8.RuneStart(b[cut]) {
		cut--
	}
	return string(b[:cut]) + "..."
}

// fault is what is wrong in the record that is being decoded.
type fault struct {
	column *column // nil: the record as a whole
	source int     // index in Decoder.sources, with a column
	at     int     // byte in the record
	value  []byte
	reason string
	none   bool
}

func (d *Decoder) errorOf(f *fault, record int, offset int64) *Error {
	e := &Error{Record: record, Offset: offset, At: f.at, Value: excerpt(f.value), Reason: f.reason, Missing: f.none}
	if f.column != nil {
		e.Column, e.Path = f.column.name, d.sources[f.source].name()
		switch {
		case f.column == d.eventTime:
			e.Reason += "; event_time takes ms or s since 1970, or RFC 3339"
		case f.none:
			e.Reason += "; give the column a default, or missing: mask"
		case !d.lenient:
			e.Reason += "; correct the record, or set decode.on_error: default"
		}
	}
	return e
}
