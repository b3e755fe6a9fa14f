package decode

import (
	"strconv"

	"github.com/headrace/headrace/internal/dataset"
)

// want is a place in records to which some column's path leads. The children of the root are
// members of the record.
type want struct {
	token    string
	star     bool
	children []*want
	cells    []int32 // that the value here fills
	below    []int32 // cells of paths that end here or go on from here
}

// planWants makes the tree of the pointers among the sources, and their cells.
func (d *Decoder) planWants() *want {
	w := &d.walking
	bySource := make([][]int32, len(d.sources))
	add := func(c *column, element, src int) {
		bySource[src] = append(bySource[src], int32(len(w.cells)))
		w.cells = append(w.cells, newCell(c, element, src))
	}
	for _, c := range d.columns {
		for e, src := range c.sources {
			if c.walked = d.sources[src].path.Kind == dataset.Pointer; !c.walked {
				continue
			}
			if add(c, e, src); c.ragged || c.shaped {
				w.lists = append(w.lists, c)
			}
		}
	}
	if t := d.eventTime; t != nil && d.sources[t.sources[0]].path.Kind == dataset.Pointer {
		t.walked = true
		add(t, 0, t.sources[0])
		w.cells[len(w.cells)-1].kind = instantCell
	}
	w.seen = make([]uint64, len(w.cells))
	root := &want{}
	for src := range d.sources {
		p := &d.sources[src].path
		if p.Kind != dataset.Pointer {
			continue
		}
		n := root
		n.below = append(n.below, bySource[src]...)
		for i, token := range p.Tokens {
			n = n.child(token, p.Stars[i])
			n.below = append(n.below, bySource[src]...)
			for _, id := range bySource[src] {
				if p.Stars[i] {
					w.cells[id].stars++
				}
			}
		}
		n.cells = append(n.cells, bySource[src]...)
	}
	return root
}

func (n *want) child(token string, star bool) *want {
	for _, c := range n.children {
		if c.star == star && (star || c.token == token) {
			return c
		}
	}
	c := &want{token: token, star: star}
	n.children = append(n.children, c)
	return c
}

// index is the number of an array's element that the token names.
func (n *want) index() (int, bool) {
	i, err := strconv.Atoi(n.token)
	return i, err == nil && !n.star && i >= 0 && strconv.Itoa(i) == n.token
}

// cellsOf returns the cells that the values at these places fill.
func cellsOf(all []*want) []int32 {
	var ids []int32
	for _, n := range all {
		ids = append(ids, n.cells...)
	}
	return ids
}

// belowOf are the cells of all paths that end here or go on from here.
func belowOf(all []*want) []int32 {
	var ids []int32
	for _, n := range all {
		ids = append(ids, n.below...)
	}
	return ids
}

func childrenOf(all []*want) []*want {
	var list []*want
	for _, n := range all {
		list = append(list, n.children...)
	}
	return list
}

// innermost are the cells whose last * is the one of these nodes: one value, or a missing
// one, for each element.
func innermost(stars []*want) []int32 {
	var ids []int32
	for _, n := range stars {
		ids = append(ids, n.cells...)
		for _, c := range n.children {
			if !c.star {
				ids = append(ids, innermost([]*want{c})...)
			}
		}
	}
	return ids
}
