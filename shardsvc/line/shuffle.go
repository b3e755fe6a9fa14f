package line

import (
	"math/bits"
	"sort"
)

// permutation is the order of a shuffled pass over n blocks: cycle-walking
// 4-round Feistel, written down in docs/PROTOCOL.md (Shuffle).
type permutation struct {
	n, key  uint64
	half    uint
	inOrder bool // nothing is permuted: block x comes at place x
}

func splitmix64(z uint64) uint64 {
	z += 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func NewPermutation(n, seed uint64, pass uint32) permutation {
	w := uint(2)
	if n > 4 {
		w = uint(bits.Len64(n - 1))
		w += w & 1
	}
	return permutation{n: n, key: splitmix64(seed + 0x9E3779B97F4A7C15*(uint64(pass)+1)), half: w / 2}
}

func (p permutation) round(r, x uint64) uint64 {
	return splitmix64(p.key+r*0xD1B54A32D192ED03+x) & (1<<p.half - 1)
}

// Block returns the block of the input that comes at place x of the order, x < n.
func (p permutation) Block(x uint64) uint64 {
	if p.inOrder {
		return x
	}
	mask := uint64(1)<<p.half - 1
	for {
		l, r := x>>p.half, x&mask
		for i := range uint64(4) {
			l, r = r, l^p.round(i, r)
		}
		if x = l<<p.half | r; x < p.n {
			return x
		}
	}
}

// Place is the inverse of Block.
func (p permutation) Place(x uint64) uint64 {
	if p.inOrder {
		return x
	}
	mask := uint64(1)<<p.half - 1
	for {
		l, r := x>>p.half, x&mask
		for i := uint64(4); i > 0; i-- {
			l, r = r^p.round(i-1, l), l
		}
		if x = l<<p.half | r; x < p.n {
			return x
		}
	}
}

// deadTail is the part of a block of the order that holds no record, because
// its block of the input is the short last one of a segment.
type deadTail struct {
	start, end int64 // on the line
	before     int64 // dead units on the line before start
}

// order is the shuffled line of one pass. A virtual rank has every Every-th block of it,
// from block First on.
type order struct {
	Perm         permutation
	Block        int64
	first, every int64
	dead         []deadTail // by start
}

// newOrder makes the order of pass n. The table must be complete.
func (t *Table) newOrder(n uint32) *order {
	block := t.Size
	o := &order{Perm: NewPermutation(uint64(t.Count), t.Seed, n), Block: block, first: t.First, every: t.Every}
	o.Perm.inOrder = t.InOrder
	for i := range t.Segs {
		s := &t.Segs[i]
		size := s.End - s.Start
		if short := size % block; short != 0 {
			at := int64(o.Perm.Place(uint64(s.block + size/block)))
			if at%o.every != o.first {
				continue // another virtual rank's
			}
			at /= o.every
			o.dead = append(o.dead, deadTail{start: at*block + short, end: (at + 1) * block})
		}
	}
	sort.Slice(o.dead, func(i, j int) bool { return o.dead[i].start < o.dead[j].start })
	sum := int64(0)
	for i := range o.dead {
		o.dead[i].before = sum
		sum += o.dead[i].end - o.dead[i].start
	}
	return o
}

// Source returns the block of the input that position pos of the line lies in.
func (o *order) Source(pos int64) int64 {
	return int64(o.Perm.Block(uint64(pos/o.Block*o.every + o.first)))
}

// below counts the dead units of the line below pos.
func (o *order) below(pos int64) int64 {
	i := sort.Search(len(o.dead), func(i int) bool { return o.dead[i].start >= pos })
	if i == 0 {
		return 0
	}
	d := o.dead[i-1]
	return d.before + min(pos, d.end) - d.start
}
