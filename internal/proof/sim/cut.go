package sim

import (
	"github.com/headrace/headrace/shardsvc/cut"
)

// checkCut compares a frozen cut with the model that was copied at its step. It uses the generator's own
// values to find the records of the cut, not the code of a reader.
func (b *books) checkCut(t *trainer, body *cut.Cut, copied *model) {
	w := b.w
	in := w.members(body)
	b.checkRecords(t, body, in)
	b.checkList(t, body)
	for r := range w.records {
		n := copied.times[r]
		switch {
		case w.plan.model == shared && in[r] && n == 0:
			w.fail("%s: cut %x says that %s is in the model, and it is not", t.name, uint64(body.ID), w.input.where(int32(r)))
		case w.plan.model == shared: // the model may hold more than the cut
		case in[r] != (n == 1):
			w.fail("%s: cut %x at step %d has %s: %v, and it is in the model of that step %d times", t.name, uint64(body.ID), body.Step, w.input.where(int32(r)), in[r], n)
		}
	}
}

// members says for each record whether it is in a cut.
func (w *World) members(body *cut.Cut) []bool {
	in := make([]bool, w.records)
	for i := range body.Datasets {
		d := &body.Datasets[i]
		for j := range d.Partitions {
			q := &d.Partitions[j]
			p := w.input.part(q.Identity)
			for pass := range q.Done {
				w.mark(in, true, d, p, q.Identity, pass, func(cut.Place) bool { return true })
			}
			for k := range q.Passes {
				x := &q.Passes[k]
				low := p.unfold(x.Low.Segment, x.Low.Offset)
				w.mark(in, true, d, p, q.Identity, x.Pass, func(at cut.Place) bool {
					if before(at, low) {
						return true
					}
					for _, y := range x.Ranges {
						if y.Kind == cut.Acked && !before(at, p.unfold(y.Start.Segment, y.Start.Offset)) && before(at, p.unfold(y.End.Segment, y.End.Offset)) {
							return true
						}
					}
					return false
				})
			}
			w.markExcluded(in, d, q, false)
			w.markDropped(in, false, d, q)
			for k := range q.Segments {
				g := &q.Segments[k]
				for pass := 0; pass*w.input.total < w.records; pass++ {
					w.eachIn(q.Identity, uint32(pass), g.ID, 0, g.Start, func(_ *segment, rec int32, _ int64) { in[rec] = false })
				}
			}
		}
	}
	return in
}

func before(a, b cut.Place) bool {
	i, j := place(a.Segment), place(b.Segment)
	return i < j || i == j && a.Offset < b.Offset
}

// mark sets `to` to `as` for the records of a pass whose place in order space fulfils `is`.
func (w *World) mark(to []bool, as bool, d *cut.Dataset, p *part, identity string, pass uint32, is func(cut.Place) bool) {
	base := int(pass) * w.input.total
	if d.Shuffle == nil {
		for _, s := range p.segs {
			for i, at := range s.begins {
				if is(cut.Place{Segment: s.id, Offset: at}) {
					to[base+s.first+i] = as
				}
			}
		}
		return
	}
	_, v := cut.SourceIdentity(identity, d.Shuffle.VirtualRanks)
	p.eachPlace(d, pass, func(i int, at int64) {
		if n := int64(d.Shuffle.VirtualRanks); n > 0 {
			block := at / d.Shuffle.Block
			if block%n != int64(v) {
				return
			}
			at = block/n*d.Shuffle.Block + at%d.Shuffle.Block
		}
		if is(cut.Place{Offset: at}) {
			to[base+i] = as
		}
	})
}

// eachPlace gives each record's place in the order of a shuffled pass.
func (p *part) eachPlace(d *cut.Dataset, pass uint32, do func(rec int, at int64)) {
	order := p.order(d, pass)
	blocks := int64(0)
	for _, s := range p.segs {
		for i, at := range s.begins {
			do(s.first+i, order[blocks+(at-s.start)/d.Shuffle.Block]*d.Shuffle.Block+(at-s.start)%d.Shuffle.Block)
		}
		blocks += (s.end - s.start + d.Shuffle.Block - 1) / d.Shuffle.Block
	}
}

func (p *part) blocks(block int64) (n uint64) {
	for _, s := range p.segs {
		n += uint64((s.end - s.start + block - 1) / block)
	}
	return n
}

// order gives the order of the blocks in a shuffled pass (docs/PROTOCOL.md, Shuffle). It is a second
// implementation.
func (p *part) order(d *cut.Dataset, pass uint32) []int64 {
	n := p.blocks(d.Shuffle.Block)
	of := make([]int64, n)
	if d.Shuffle.InOrder {
		for i := range of {
			of[i] = int64(i)
		}
		return of
	}
	bits := uint(2)
	for uint64(1)<<bits < n {
		bits += 2
	}
	h := bits / 2
	mask := uint64(1)<<h - 1
	key := splitmix(d.Shuffle.Seed + 0x9E3779B97F4A7C15*uint64(pass+1))
	for i := range n {
		x := i
		for ok := true; ok; ok = x >= n {
			left, right := x>>h, x&mask
			for r := range uint64(4) {
				left, right = right, left^(splitmix(key+r*0xD1B54A32D192ED03+right)&mask)
			}
			x = left<<h | right
		}
		of[x] = int64(i)
	}
	return of
}

func splitmix(z uint64) uint64 {
	z += 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
