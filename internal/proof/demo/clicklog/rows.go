package clicklog

import "math"

// block is up to blockRows records: their text and the truth about them.
type block struct {
	text   []byte
	starts []int64 // where each record begins in text
	checks []uint64
	labels []byte
}

const (
	blockRows = 8192
	maxRow    = 2 + Ints*11 + Categories*9 + 1
)

func newBlock() *block {
	return &block{
		text:   make([]byte, 0, blockRows*maxRow),
		starts: make([]int64, 0, blockRows),
		checks: make([]uint64, 0, blockRows),
		labels: make([]byte, 0, blockRows),
	}
}

// fill replaces the block's records by n new ones. phase is 0 before the drift and 1 after it.
func (b *block) fill(w *world, r random, n, phase int) {
	b.text, b.starts, b.checks, b.labels = b.text[:0], b.starts[:0], b.checks[:0], b.labels[:0]
	for range n {
		b.row(w, &r, phase)
	}
}

func (b *block) row(w *world, r *random, phase int) {
	start := len(b.text)
	text := append(b.text, '0')
	score, check := float32(bias), uint64(0)
	bits, left := uint64(0), 0
	for j := range w.ints {
		if left < 12 {
			bits, left = r.next(), 60
		}
		v := &w.ints[j][bits%quantiles]
		bits, left = bits>>12, left-12
		text = append(text, '\t')
		text = append(text, v.text[:v.n]...)
		score += v.weight
		check += v.check
	}
	for c := range w.ids {
		ids := w.ids[c]
		draw := r.next()
		k := draw >> 32 * uint64(len(ids)) >> 32
		if uint32(draw) > ids[k].keep {
			k = uint64(ids[k].alias)
		}
		if phase == 1 {
			if k += uint64(w.shift[c]); k >= uint64(len(ids)) {
				k -= uint64(len(ids))
			}
		}
		v := &ids[k]
		text = append(text, '\t')
		text = append(text, v.text[:]...)
		score += v.weight[phase]
		check += v.check
	}
	text = append(text, '\n')
	label := byte(0)
	if r.float() < 1/(1+math.Exp(-float64(score))) {
		label = 1
		text[start] = '1'
		check += Key(0)
	}
	b.text = text
	b.starts = append(b.starts, int64(start))
	b.checks = append(b.checks, check)
	b.labels = append(b.labels, label)
}
