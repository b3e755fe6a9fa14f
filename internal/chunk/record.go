package chunk

import (
	"encoding/binary"
	"errors"
)

// Record is one pushed record.
type Record struct {
	Key     []byte // nil: none
	Value   []byte
	Null    bool  // the value is null: the key is deleted
	Time    int64 // ms since 1970; 0: not said
	Headers []Field
}

// Field is a header: a name and a value beside a record.
type Field struct{ Key, Value []byte }

// A record begins with a byte that says which parts follow, in this order.
const (
	hasKey     = 1 << iota // uvarint length, bytes
	isNull                 // no value follows
	hasTime                // zigzag varint
	hasHeaders             // uvarint count; of each, key and value as a uvarint length and bytes
	allFlags   = 1<<iota - 1
)

const maxHeaders = 1 << 12

var errRecord = errors.New("it is cut short or damaged")

func (r *Record) append(b []byte) []byte {
	at := len(b)
	b = append(b, 0)
	if r.Key != nil {
		b[at] |= hasKey
		b = appendBytes(b, r.Key)
	}
	if r.Time != 0 {
		b[at] |= hasTime
		b = binary.AppendVarint(b, r.Time)
	}
	if len(r.Headers) > 0 {
		b[at] |= hasHeaders
		b = binary.AppendUvarint(b, uint64(len(r.Headers)))
		for _, h := range r.Headers {
			b = appendBytes(appendBytes(b, h.Key), h.Value)
		}
	}
	if r.Null {
		b[at] |= isNull
		return b
	}
	return appendBytes(b, r.Value)
}

func appendBytes(b, x []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(x))), x...)
}

// read takes a record from the beginning of b and returns its length.
func (r *Record) read(b []byte) (int, error) {
	if len(b) == 0 || b[0] > allFlags {
		return 0, errRecord
	}
	d := reader{b: b[1:]}
	flags := b[0]
	if flags&hasKey != 0 {
		r.Key = d.bytes()
	}
	if flags&hasTime != 0 {
		r.Time = d.varint()
	}
	if flags&hasHeaders != 0 {
		n := d.uvarint()
		if n > maxHeaders {
			return 0, errRecord
		}
		for range n {
			r.Headers = append(r.Headers, Field{d.bytes(), d.bytes()})
			if d.bad {
				return 0, errRecord
			}
		}
	}
	if r.Null = flags&isNull != 0; !r.Null {
		r.Value = d.bytes()
	}
	if d.bad {
		return 0, errRecord
	}
	return len(b) - len(d.b), nil
}

type reader struct {
	b   []byte
	bad bool
}

func (d *reader) uvarint() uint64 {
	x, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return x
}

func (d *reader) varint() int64 {
	x, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return x
}

func (d *reader) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	x := d.b[:n:n]
	d.b = d.b[n:]
	return x
}
