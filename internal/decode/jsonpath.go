package decode

import (
	"slices"
	"strconv"
	"unsafe"
)

// node is a place in the documents that some column's path leads to or through.
type node struct {
	id        uint32 // from 1
	slot      int    // of the path that ends here, or -1
	inStar    bool   // that path has a *: its values go to a list
	simple    bool   // a path without a * ends here, and none goes on
	children  map[string]*node
	star      *node // every element of an array
	indexed   bool  // some child's name is an array index
	lastStars []int // of a star node: slots whose innermost * is this one
	below     []int // slots of the paths that go on from here

	// A member that comes twice in one object replaces what the first one gave.
	object uint64 // the object (numbered as they are met) this was last met in
	marks  []int  // lengths of the lists of below before it was
}

// newTrie makes the tree of the pointers among the sources; nil without any.
func (d *Decoder) newTrie(pointers []int) *node {
	root := &node{slot: -1}
	for _, i := range pointers {
		src := &d.sources[i]
		n, lastStar := root, (*node)(nil)
		for j, token := range src.path.Tokens {
			n.below = append(n.below, i)
			if src.path.Stars[j] {
				if n.star == nil {
					n.star = &node{slot: -1}
				}
				n = n.star
				lastStar = n
				continue
			}
			if n.children == nil {
				n.children = map[string]*node{}
			}
			if n.children[token] == nil {
				n.children[token] = &node{slot: -1}
			}
			if v, err := strconv.Atoi(token); err == nil && strconv.Itoa(v) == token {
				n.indexed = true
			}
			n = n.children[token]
		}
		n.slot, n.inStar = i, src.star
		if lastStar != nil {
			lastStar.lastStars = append(lastStar.lastStars, i)
		}
	}
	count := uint32(0)
	root.finish(&count)
	return root
}

func (n *node) finish(count *uint32) {
	*count++
	n.id = *count
	n.simple = n.slot >= 0 && !n.inStar && n.below == nil
	for _, c := range n.children {
		c.finish(count)
	}
	if n.star != nil {
		n.star.finish(count)
	}
}

// meet is called when member n of an object is met, before its value.
func (d *Decoder) meet(n *node, object uint64) {
	if n.below == nil {
		return
	}
	again := n.object == object
	n.object = object
	n.marks = slices.Grow(n.marks[:0], len(n.below))[:len(n.below)]
	for i, s := range n.below {
		switch {
		case !again:
			n.marks[i] = len(d.lists[s].slots)
		case d.sources[s].star:
			d.lists[s].slots = d.lists[s].slots[:n.marks[i]]
		default:
			d.slots[s] = slot{}
		}
	}
}

// keyMemory is the keys of earlier records in the order they came. With each key
// go the bytes around it, from the end of the value before it (or the brace) up to
// its own value: `, "C12": `. Records of one writer differ in values, but hardly in
// these bytes. Bytes that are equal to the remembered ones need not be parsed or
// looked up: they were accepted before, in the same place of the grammar.
type keyMemory struct {
	list   []key
	next   int // expected now
	shifts int // keys that came between remembered ones
	rest   int // records left without learning: the order is too wild
}

type key struct {
	context      uint32 // the object's node, and whether this is its first member
	slot         int32  // of the child, if it is simple and the bytes are ASCII; else -1
	child        *node  // nil: not wanted
	size         int
	words, masks [2]uint64
	tail         string // beyond 16 bytes
	wide         uint64 // its bytes beyond ASCII: still to be checked in each record
}

const (
	maxKeys     = 4096
	maxKeyBytes = 256
	lookAhead   = 4 // optional members may be absent
	maxShifts   = 256
	restRecords = 1024
)

// findKey looks for the expected key, and the few after it, at p.
func (d *Decoder) findKey(p int, parent *node, first bool) *key {
	m, context := &d.keys, contextOf(parent, first)
	for i := m.next; i < min(m.next+lookAhead, len(m.list)); i++ {
		k := &m.list[i]
		if (load(d.base, p)^k.words[0])&k.masks[0] != 0 || k.context != context || p+k.size >= d.end {
			continue
		}
		if k.size > 8 && ((load(d.base, p+8)^k.words[1])&k.masks[1] != 0 || k.size > 16 && !k.longAt(d.base, p, d.end)) {
			continue
		}
		m.next = i + 1
		d.wide |= k.wide
		return k
	}
	return nil
}

// longAt compares what is beyond 16 bytes of a key.
func (k *key) longAt(base unsafe.Pointer, p, end int) bool {
	return p+k.size <= end && string(unsafe.Slice((*byte)(unsafe.Add(base, p+16)), k.size-16)) == k.tail
}

// contextOf numbers the places in the grammar that a key can be in.
func contextOf(n *node, first bool) uint32 {
	var c uint32
	if n != nil {
		c = n.id << 1
	}
	if first {
		c |= 1
	}
	return c
}

// remember puts a key that findKey did not find where it was expected.
func (m *keyMemory) remember(raw []byte, parent, child *node, first bool) {
	if m.rest > 0 || len(raw) > maxKeyBytes || len(m.list) >= maxKeys {
		return
	}
	if m.next < len(m.list) {
		if m.shifts++; m.shifts > maxShifts {
			m.list, m.next, m.shifts, m.rest = m.list[:0], 0, 0, restRecords
			return
		}
	}
	k := key{context: contextOf(parent, first), slot: -1, child: child, size: len(raw)}
	for _, c := range raw {
		k.wide |= uint64(c)
	}
	if child != nil && child.simple && k.wide < 0x80 {
		k.slot = int32(child.slot)
	}
	for i := range min(16, len(raw)) {
		k.words[i/8] |= uint64(raw[i]) << (8 * (i % 8))
		k.masks[i/8] |= 0xFF << (8 * (i % 8))
	}
	if len(raw) > 16 {
		k.tail = string(raw[16:])
	}
	m.list = slices.Insert(m.list, min(m.next, len(m.list)), k)
	m.next++
}
