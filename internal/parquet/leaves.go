package parquet

import (
	"strings"

	"github.com/headrace/headrace/sources"
)

// Leaf is a field that a column can be made of.
type Leaf struct {
	Name  string // as people call it: "user_id", "items_price"
	Path  string // as a JSON Pointer, with a star for the elements of a list
	List  bool
	Kind  sources.ValueKind
	Ticks int64 // of a time: ticks per second; of a date: sources.PerDay; else 0
}

// Leaves are the fields of the file in their order. A field whose values are not
// supported is left out.
func (f *File) Leaves() (all []Leaf) {
	var walk func(n *node, path, name string)
	walk = func(n *node, path, name string) {
		if n.isList() {
			if n = n.elements(); n == nil {
				return
			}
			walk(n, path+"/*", name)
			return
		}
		if n.group {
			for _, c := range n.nodes {
				token := strings.NewReplacer("~", "~0", "/", "~1").Replace(c.name)
				if c.name == "*" {
					token = "~2"
				}
				walk(c, path+"/"+token, strings.TrimPrefix(name+"_"+c.name, "_"))
			}
			return
		}
		if kind, ticks, err := n.kind(); err == nil {
			all = append(all, Leaf{Name: name, Path: path, List: n.rep > 0, Kind: kind, Ticks: ticks})
		}
	}
	walk(f.root, "", "")
	return all
}
