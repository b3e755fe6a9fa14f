package frame

import "sync"

// Pool keeps builders of one layout and limit for reuse. Its zero value is not
// usable; it is safe for concurrent use.
type Pool struct {
	layout *Layout
	rows   int
	free   sync.Pool
}

// NewPool makes builders for rows rows. The first one is made now, so that a
// limit that is too large is an error here and not in the middle of a stream.
func NewPool(l *Layout, rows int) (*Pool, error) {
	b, err := NewBuilder(l, rows)
	if err != nil {
		return nil, err
	}
	p := &Pool{layout: l, rows: rows}
	p.free.Put(b)
	return p, nil
}

// Get returns an empty builder.
func (p *Pool) Get() *Builder {
	if b, ok := p.free.Get().(*Builder); ok {
		return b
	}
	b, err := NewBuilder(p.layout, p.rows)
	if err != nil {
		panic("frame: a builder that could be made once can not be made again: " + err.Error())
	}
	return b
}

// Put takes b back; its payload is no longer valid.
func (p *Pool) Put(b *Builder) {
	b.Reset()
	p.free.Put(b)
}
