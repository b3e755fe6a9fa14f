package audit

// permutation of n blocks: docs/PROTOCOL.md, Shuffle. It does not share code with the
// planner, so that an audit does not repeat the planner's mistakes.
type permutation struct {
	n, key uint64
	half   uint
}

func splitmix64(z uint64) uint64 {
	z += 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func newPermutation(n, seed uint64, pass uint32) permutation {
	width := uint(2)
	for width < 64 && (uint64(1)<<width < n || width%2 == 1) {
		width++
	}
	return permutation{n: n, key: splitmix64(seed + 0x9E3779B97F4A7C15*(uint64(pass)+1)), half: width / 2}
}

func (p permutation) mix(round, x uint64) uint64 {
	return splitmix64(p.key+round*0xD1B54A32D192ED03+x) & (1<<p.half - 1)
}

// source is the block of the input that is block x of the order.
func (p permutation) source(x uint64) uint64 {
	for again := true; again; again = x >= p.n {
		l, r := x>>p.half, x&(1<<p.half-1)
		for round := range uint64(4) {
			l, r = r, l^p.mix(round, r)
		}
		x = l<<p.half | r
	}
	return x
}

// order is where block x of the input is in the order.
func (p permutation) order(x uint64) uint64 {
	for again := true; again; again = x >= p.n {
		l, r := x>>p.half, x&(1<<p.half-1)
		for round := uint64(4); round > 0; round-- {
			l, r = r^p.mix(round-1, l), l
		}
		x = l<<p.half | r
	}
	return x
}
