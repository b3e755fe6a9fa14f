package feed

import (
	"encoding/json"
	"fmt"
)

// namesMost is how many names a connection is told before they are told again. Each pushed chunk
// and each file of a folder that grows is a segment, so without a bound the names would take
// memory for as long as the connection lives.
const namesMost = 8192

// names remembers which names a connection was told.
type names struct {
	partitions map[uint32]bool
	segments   map[[2]int64]bool
}

func newNames() names { return names{map[uint32]bool{}, map[[2]int64]bool{}} }

// namesBlock is what a frame says of names.
type namesBlock struct {
	// Anew: all names that the connection was told before are told again before they are used
	// again, so a client may forget them. An older client ignores it and keeps them.
	Anew       bool              `json:"anew,omitempty"`
	Partitions map[string]string `json:"partitions,omitempty"`
	Segments   map[string]string `json:"segments,omitempty"`
}

// of is the names block of the frame: names that this connection was not told before. If there
// are such names and many others were told, all names of the frame are told, with Anew.
func (n *names) of(w *work) []byte {
	many := len(n.partitions)+len(n.segments) >= namesMost
	block := n.untold(w)
	if block.Partitions == nil && block.Segments == nil {
		return nil
	}
	if many {
		clear(n.partitions)
		clear(n.segments)
		block = n.untold(w)
		block.Anew = true
	}
	text, err := json.Marshal(block)
	if err != nil { // two maps of strings always encode
		panic("feed: " + err.Error())
	}
	return text
}

// untold are the names of the frame that are not remembered. It remembers them.
func (n *names) untold(w *work) (block namesBlock) {
	for i := range w.runs {
		g := w.runs[i].l.grant
		p := g.Pieces[w.runs[i].piece]
		if !n.partitions[g.Partition] {
			n.partitions[g.Partition] = true
			if block.Partitions == nil {
				block.Partitions = map[string]string{}
			}
			block.Partitions[fmt.Sprint(g.Partition)] = g.Identity
		}
		if key := [2]int64{int64(g.Partition), p.Segment}; !n.segments[key] {
			n.segments[key] = true
			if block.Segments == nil {
				block.Segments = map[string]string{}
			}
			block.Segments[fmt.Sprintf("%d/%d", g.Partition, p.Segment)] = p.Name
		}
	}
	return block
}
