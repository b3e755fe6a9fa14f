package parquet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// node is a field of the schema.
type node struct {
	element
	nodes []*node
	leaf  int // of a primitive field: which column of a row group
	// The highest levels of the field. def counts the optional and repeated fields on the way
	// from the root to it, rep only the repeated ones. Both include the field itself.
	def, rep int
	// slot is the definition level of the innermost repeated field on the way. An entry with
	// a lower level has no slot for a value: the list is empty or null.
	slot int
	// entered: a star has led into this repeated field.
	entered bool
}

const maxLevel = 200

func buildSchema(elements []element) (root *node, leaves []*node, err error) {
	next := 0
	var build func(above *node, depth int) (*node, error)
	build = func(above *node, depth int) (*node, error) {
		if next >= len(elements) || depth > maxDepth {
			return nil, fmt.Errorf("its schema is damaged")
		}
		n := &node{element: elements[next], leaf: -1}
		next++
		if above != nil {
			n.def, n.rep, n.slot = above.def, above.rep, above.slot
			if n.repetition != 0 {
				n.def++
			}
			if n.repetition == 2 {
				n.rep++
				n.slot = n.def
			}
		}
		if n.def > maxLevel || n.rep > maxLevel {
			return nil, fmt.Errorf("its schema is nested too deeply")
		}
		if !n.group {
			if n.typ < boolean || n.typ > fixedBytes {
				return nil, fmt.Errorf("field %q has the unknown type %d", n.name, n.typ)
			}
			n.leaf = len(leaves)
			leaves = append(leaves, n)
			return n, nil
		}
		for range n.children {
			c, err := build(n, depth+1)
			if err != nil {
				return nil, err
			}
			n.nodes = append(n.nodes, c)
		}
		return n, nil
	}
	if root, err = build(nil, 0); err != nil {
		return nil, nil, err
	}
	if next != len(elements) {
		return nil, nil, fmt.Errorf("its schema is damaged")
	}
	return root, leaves, nil
}

func (n *node) child(name string) *node {
	i := slices.IndexFunc(n.nodes, func(c *node) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return n.nodes[i]
}

// Path says where a column's values are. A token is the name of a field. A star stands for
// every element of a list, or for every entry of a map, whose fields are key and value.
type Path struct {
	Text   string // for people, and Column.Path
	Tokens []string
	Stars  []bool
}

var errAbsent = errors.New("there is no such field")

// find returns the leaf of a path, or errAbsent.
func (root *node) find(p Path) (*node, error) {
	at := root
	for i, token := range p.Tokens {
		if p.Stars[i] {
			if at = at.elements(); at == nil {
				return nil, fmt.Errorf("%s: %s is no list", p.Text, strings.Join(p.Tokens[:i], "/"))
			}
			continue
		}
		if at.isList() {
			return nil, fmt.Errorf("%s: %s is a list; write a * for its elements", p.Text, at.name)
		}
		next := at.child(token)
		if next == nil {
			return nil, errAbsent
		}
		at = next
	}
	switch {
	case at.isList():
		return nil, fmt.Errorf("%s is a list; write %s/* for its elements", p.Text, p.Text)
	case at.group:
		return nil, fmt.Errorf("%s is a group of fields; name one of them", p.Text)
	}
	return at, nil
}

// isList reports whether a path must go on with a star from here. A repeated field without an
// annotation is a list too, until a star has led into it.
func (n *node) isList() bool {
	return n.group && (n.logical == logicalList || n.logical == logicalMap) && len(n.nodes) == 1 && n.nodes[0].repetition == 2 ||
		n.repetition == 2 && !n.entered
}

// elements returns the node of one element of a list; nil: n is no list. The rules are those
// of the format's page LogicalTypes.md, the older forms of lists included.
func (n *node) elements() *node {
	if n.repetition == 2 && !n.entered {
		c := *n
		c.entered = true
		return &c
	}
	if !n.isList() {
		return nil
	}
	repeated := n.nodes[0]
	if n.logical == logicalList && repeated.group && len(repeated.nodes) == 1 &&
		repeated.name != "array" && repeated.name != n.name+"_tuple" {
		return repeated.nodes[0]
	}
	c := *repeated
	c.entered = true
	return &c
}
