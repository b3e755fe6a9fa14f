package avrofile

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/headrace/headrace/internal/schema"
)

// Bounds on the work that a hostile record can cause. They are those of internal/decode, so
// every record that can be decoded there can be skipped here.
const (
	maxCalls = 1 << 10 // records inside each other
	maxIdle  = 1 << 16 // elements of a record's arrays that take no bytes
)

// End returns where the record that begins at p of a block ends.
func (f *File) End(block []byte, p int) (int, error) {
	s := skipper{b: block}
	end := s.value(f.typ, p)
	if end < 0 {
		return 0, fmt.Errorf("the record at byte %d of its block %s", p, s.why)
	}
	return end, nil
}

// noBytes says whether a value may take no bytes. seen has the types of records that were
// looked at. A type that contains itself does so through a union or an array, and these take
// bytes.
func noBytes(t *schema.Type, seen map[*schema.Type]bool) bool {
	switch t.Kind {
	case schema.Null:
		return true
	case schema.Fixed:
		return t.Size == 0
	case schema.Record:
		if known, ok := seen[t]; ok {
			return known
		}
		seen[t] = false
		for i := range t.Fields {
			if !noBytes(t.Fields[i].Type, seen) {
				return false
			}
		}
		seen[t] = true
		return true
	}
	return false
}

// skipper walks over values. Its methods return where a value ends, or -1 and why.
type skipper struct {
	b           []byte
	depth, idle int
	why         string
}

func (s *skipper) wrong(p int, format string, args ...any) int {
	if s.why == "" {
		s.why = fmt.Sprintf("is damaged at byte %d: %s", p, fmt.Sprintf(format, args...))
	}
	return -1
}

func (s *skipper) bytes(p int, n int64) int {
	if n > int64(len(s.b)-p) {
		return s.wrong(p, "a value of %d bytes lies there, and the block ends after %d", n, len(s.b)-p)
	}
	return p + int(n)
}

func (s *skipper) long(p int) (int64, int) {
	if p < len(s.b) && s.b[p] < 0x80 {
		b := int64(s.b[p])
		return b>>1 ^ -(b & 1), p + 1
	}
	u, n := binary.Uvarint(s.b[p:])
	if n <= 0 {
		return 0, s.wrong(p, "a number ends too late")
	}
	return int64(u>>1) ^ -int64(u&1), p + n
}

func (s *skipper) value(t *schema.Type, p int) int {
	switch t.Kind {
	case schema.Null:
		return p
	case schema.Bool:
		return s.bytes(p, 1)
	case schema.Float:
		return s.bytes(p, 4)
	case schema.Double:
		return s.bytes(p, 8)
	case schema.Fixed:
		return s.bytes(p, int64(t.Size))
	case schema.Int, schema.Long, schema.Enum:
		_, p = s.long(p)
		return p
	case schema.Bytes, schema.String:
		return s.text(p)
	case schema.Array, schema.Map:
		return s.items(t, p)
	case schema.Union:
		n, q := s.long(p)
		switch {
		case q < 0:
			return q
		case n < 0 || n >= int64(len(t.Branches)):
			return s.wrong(p, "branch %d of a union that has %d", n, len(t.Branches))
		}
		return s.nested(t.Branches[n], q)
	case schema.Record:
		for i := range t.Fields {
			if p = s.nested(t.Fields[i].Type, p); p < 0 {
				break
			}
		}
		return p
	}
	return s.wrong(p, "a value of an unknown type")
}

// nested is value with one level more.
func (s *skipper) nested(t *schema.Type, p int) int {
	if s.depth++; s.depth > maxCalls {
		return s.wrong(p, "values lie inside each other more than %d deep", maxCalls)
	}
	p = s.value(t, p)
	s.depth--
	return p
}

func (s *skipper) text(p int) int {
	n, q := s.long(p)
	switch {
	case q < 0:
		return q
	case n < 0:
		return s.wrong(p, "a negative length")
	}
	return s.bytes(q, n)
}

// items skips the blocks of an array or a map.
func (s *skipper) items(t *schema.Type, p int) int {
	for {
		n, q := s.long(p)
		if q < 0 || n == 0 {
			return q
		}
		if n < 0 { // its size in bytes follows
			size, r := s.long(q)
			switch {
			case r < 0:
				return r
			case size < 0 || n == math.MinInt64:
				return s.wrong(p, "a block of an array has %d elements in %d bytes", n, size)
			}
			n, q = -n, r
		}
		for p = q; n > 0; n-- {
			from := p
			if t.Kind == schema.Map {
				if p = s.text(p); p < 0 {
					return p
				}
			}
			if p = s.nested(t.Item, p); p < 0 {
				return p
			}
			if p == from {
				if s.idle++; s.idle > maxIdle {
					return s.wrong(p, "an array has more than %d elements that take no bytes", maxIdle)
				}
			}
		}
	}
}
