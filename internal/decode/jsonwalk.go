package decode

import (
	"strconv"
	"unicode/utf8"
)

// maxDepth is encoding/json's.
const maxDepth = 10000

// walk checks a JSON record as a whole and fills the slots of the wanted paths.
// It accepts what encoding/json accepts, except invalid UTF-8, which that
// package replaces and we refuse. A member that comes twice: the last one wins.
func (d *Decoder) walk() *fault {
	d.keys.next = 0
	if d.keys.rest > 0 {
		d.keys.rest--
	}
	d.wide, d.jsonFault = 0, nil
	p := d.value(d.space(d.start), d.root, 0)
	if p < 0 {
		return d.jsonFault
	}
	if p = d.space(p); p < d.end {
		d.syntax(p, "something follows the value, and a record holds one value")
		return d.jsonFault
	}
	if d.wide&highs != 0 {
		return d.checkUTF8()
	}
	return nil
}

func (d *Decoder) checkUTF8() *fault {
	b := d.buf[d.start:d.end]
	if utf8.Valid(b) {
		return nil
	}
	i := 0
	for {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return &fault{at: i, value: b[i:], reason: "bad JSON: not UTF-8"}
		}
		i += n
	}
}

// put notes the value of the path that ends at n.
func (d *Decoder) put(n *node, start, end int, k kind) {
	s := slot{start: int32(start), end: int32(end), kind: k}
	if !n.inStar {
		d.slots[n.slot] = s
		return
	}
	l := &d.lists[n.slot]
	l.slots = append(l.slots[:l.base], s)
}

// value reads the value at p and returns the place after it, or -1. n is nil
// where nothing is wanted.
func (d *Decoder) value(p int, n *node, depth int) int {
	if p >= d.end {
		return d.syntax(p, "a value is missing")
	}
	start, k := p, missing
	switch c := d.buf[p]; {
	case c == '"':
		end, esc := d.stringEnd(p + 1)
		if end < 0 {
			return -1
		}
		if n != nil && n.slot >= 0 {
			k = str
			if esc {
				k = escaped
			}
			d.put(n, p+1, end, k)
		}
		return end + 1
	case c-'0' <= 9 || c == '-':
		p, k = d.numberEnd(p), number
	case c == '{':
		p, k = d.object(p+1, n, depth+1), object
	case c == '[':
		p, k = d.array(p+1, n, depth+1), array
	case isSpace(c): // more of it than after the remembered key
		return d.value(d.space(p), n, depth)
	default:
		p, k = d.literal(p)
	}
	if p >= 0 && n != nil && n.slot >= 0 {
		d.put(n, start, p, k)
	}
	return p
}

// object reads members from p, after the brace.
func (d *Decoder) object(p int, n *node, depth int) int {
	if depth > maxDepth {
		return d.syntax(p, "nested deeper than "+strconv.Itoa(maxDepth))
	}
	d.objects++
	number := d.objects
	for first := true; ; first = false {
		if q := d.usual(p, n, first); q != p {
			p, first = q, false
		}
		if p < d.end && d.buf[p] == '}' {
			return p + 1
		}
		var child *node
		if k := d.findKey(p, n, first); k != nil {
			child = k.child
			p += k.size
		} else {
			var closed bool
			if p, child, closed = d.member(p, n, first); closed || p < 0 {
				return p
			}
		}
		if child != nil {
			d.meet(child, number)
		}
		if p = d.value(p, child, depth); p < 0 {
			return -1
		}
	}
}

// usual takes members from p on as long as each has the remembered key and a
// value of the kind that most have: a string of up to 15 bytes without escapes,
// null, or an integer of up to 7 digits that a comma or a brace follows. It returns the
// place after the last of them; the caller judges what comes there.
func (d *Decoder) usual(p int, n *node, first bool) int {
	base, end, slots, keys := d.base, d.end, d.slots, d.keys.list
	i, context, wide := d.keys.next, contextOf(n, first), uint64(0)
	for ; i < len(keys); i++ {
		k := &keys[i]
		if (load(base, p)^k.words[0])&k.masks[0] != 0 || k.context != context || uint(k.slot) >= uint(len(slots)) {
			break
		}
		if k.size > 8 && ((load(base, p+8)^k.words[1])&k.masks[1] != 0 || k.size > 16 && !k.longAt(base, p, end)) {
			break
		}
		v := p + k.size
		s, w := &slots[k.slot], load(base, v)
		if byte(w) == '"' {
			v++
			w = load(base, v)
			q := v + 8
			if plain(w) && byte(load(base, q)) == '"' {
				// A branch, not a sum: see fast.go.
			} else if m := stringMarks(w); m != 0 {
				q = v + lowest(m)
			} else {
				last := load(base, q)
				q += lowest(stringMarks(last))
				w |= last
			}
			if q >= end || byte(load(base, q)) != '"' {
				break
			}
			wide |= w
			s.start, s.end, s.kind, s.scratch, s.ready, s.value = int32(v), int32(q), str, false, false, 0
			p = q + 1
		} else if uint32(w) == 'n'|'u'<<8|'l'<<16|'l'<<24 && v+4 < end {
			s.start, s.end, s.kind, s.scratch, s.ready, s.value = 0, 0, missing, false, true, 0
			p = v + 4
		} else {
			digits := lowest(nonDigits(w))
			q := v + digits
			// In an order that a branch predictor learns: few numbers begin with 0,
			// and how long one is, is chance.
			if c := byte(w >> (uint(8*digits) & 63)); uint(digits-1) > 6 || q >= end || (c != ',' && c != '}') || (byte(w) == '0' && digits > 1) {
				break
			}
			t := (w ^ 0x3030303030303030) << (uint(64-8*digits) & 63)
			s.start, s.end, s.kind, s.scratch, s.ready, s.value = int32(v), int32(q), number, false, true, uint32(eightDigits(t))
			p = q
		}
		context &^= 1 // the next one is not the first
	}
	d.wide |= wide
	d.keys.next = i
	return p
}

// member reads what is between two values in an object: a comma, a key and a
// colon, with white space; or the closing brace.
func (d *Decoder) member(p int, n *node, first bool) (next int, child *node, closed bool) {
	from := p
	p = d.space(p)
	if p < d.end && d.buf[p] == '}' {
		return p + 1, nil, true
	}
	if !first {
		if p >= d.end || d.buf[p] != ',' {
			return d.syntax(p, "a comma or a closing brace belongs here"), nil, false
		}
		p = d.space(p + 1)
	}
	if p >= d.end || d.buf[p] != '"' {
		return d.syntax(p, "a member's name in quotes belongs here"), nil, false
	}
	end, esc := d.stringEnd(p + 1)
	if end < 0 {
		return -1, nil, false
	}
	if n != nil && n.children != nil {
		name := d.buf[p+1 : end]
		if esc {
			name = appendUnescaped(nil, name)
		}
		child = n.children[string(name)]
	}
	if p = d.space(end + 1); p >= d.end || d.buf[p] != ':' {
		return d.syntax(p, "a colon belongs after a member's name"), nil, false
	}
	p = d.space(p + 1)
	d.keys.remember(d.buf[from:p], n, child, first)
	return p, child, false
}

// array reads elements from p, after the bracket.
func (d *Decoder) array(p int, n *node, depth int) int {
	if depth > maxDepth {
		return d.syntax(p, "nested deeper than "+strconv.Itoa(maxDepth))
	}
	if p = d.space(p); p < d.end && d.buf[p] == ']' {
		return p + 1
	}
	expected := d.keys.next
	for i := 0; ; i++ {
		d.keys.next = expected // elements resemble each other
		if p = d.element(d.space(p), n, i, depth); p < 0 {
			return -1
		}
		p = d.space(p)
		if p < d.end && d.buf[p] == ']' {
			return p + 1
		}
		if p >= d.end || d.buf[p] != ',' {
			return d.syntax(p, "a comma or a closing bracket belongs here")
		}
		p++
	}
}

// element reads element i; it may be wanted by its number, by a *, or both.
func (d *Decoder) element(p int, n *node, i, depth int) int {
	if n == nil {
		return d.value(p, nil, depth)
	}
	if n.indexed {
		if child := n.children[strconv.Itoa(i)]; child != nil {
			if d.value(p, child, depth) < 0 {
				return -1
			}
		}
	}
	if n.star == nil {
		return d.value(p, nil, depth)
	}
	for _, s := range n.star.lastStars {
		d.lists[s].base = len(d.lists[s].slots)
	}
	p = d.value(p, n.star, depth)
	for _, s := range n.star.lastStars {
		if l := &d.lists[s]; len(l.slots) == l.base {
			l.slots = append(l.slots, slot{})
		}
	}
	return p
}
