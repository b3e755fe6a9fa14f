package frame

import (
	"sync"
	"sync/atomic"
)

// Pool keeps builders of one layout for reuse. Its zero value is not usable; it is
// safe for concurrent use.
//
// A builder takes the memory of all rows that it has room for, even when it is empty. So a
// pool begins with small builders, and makes larger ones when they cut frames short.
type Pool struct {
	layout *Layout
	rows   atomic.Int64 // of builders from now on; it only grows
	most   int64
	free   sync.Pool // that have memory of their own
	bare   sync.Pool // that have none
}

// NewPool makes builders for rows rows, and after Grow for up to most. Rows that do not fit
// into a frame are an error here, not in the middle of a stream.
func NewPool(l *Layout, rows, most int) (*Pool, error) {
	most = max(rows, most)
	for _, n := range []int{rows, most} {
		if err := l.holds(n); err != nil {
			return nil, err
		}
	}
	p := &Pool{layout: l, most: int64(most)}
	p.rows.Store(int64(rows))
	return p, nil
}

// Grow makes later builders twice as large, up to the largest allowed.
func (p *Pool) Grow() {
	if rows := p.rows.Load(); rows < p.most {
		p.rows.CompareAndSwap(rows, min(2*rows, p.most))
	}
}

// ArenaSize is the memory that GetIn needs now for rows without ragged values and strings.
// Those come on top.
func (p *Pool) ArenaSize() int {
	return p.layout.arenaSize(p.layout.headSize(spareSpans), int(p.rows.Load()))
}

// Get returns an empty builder with memory of its own, which has room for what any
// of the pool holds.
func (p *Pool) Get() *Builder {
	b := p.take(&p.free)
	b.Place(nil)
	return b
}

// GetIn is Get with the memory for the payload (Builder.Place).
func (p *Pool) GetIn(memory []byte) *Builder {
	b := p.take(&p.bare)
	b.Place(memory)
	return b
}

func (p *Pool) take(from *sync.Pool) *Builder {
	rows := int(p.rows.Load())
	if b, ok := from.Get().(*Builder); ok && b.limit >= rows {
		return b
	}
	b, err := newBuilder(p.layout, rows)
	if err != nil {
		panic("frame: a builder that could be made once cannot be made again: " + err.Error())
	}
	return b
}

// Put takes b back. Its payload is no longer valid, unless it lies in memory that
// was given.
func (p *Pool) Put(b *Builder) {
	if int64(b.limit) < p.rows.Load() {
		return
	}
	b.Reset()
	b.leave()
	if b.own == nil {
		p.bare.Put(b)
	} else {
		p.free.Put(b)
	}
}
