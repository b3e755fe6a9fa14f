package shardsvc

import "github.com/headrace/headrace/sources"

// Segments lists at most max (0: all) segments of a partition with ID > after,
// in order: what a source that numbers segments itself is handed when it is
// opened again.
func (c *Core) Segments(no PartitionNo, after int64, max int) []sources.Segment {
	p := c.partition(no)
	if p == nil {
		return nil
	}
	var out []sources.Segment
	for i := range p.segs {
		s := &p.segs[i]
		if s.id <= after {
			continue
		}
		if max > 0 && len(out) == max {
			break
		}
		out = append(out, sources.Segment{ID: s.id, Start: s.start, End: s.end, Sealed: s.sealed, Locator: s.locator, Name: s.name})
	}
	return out
}

// HasPartition says whether a partition is known: not removed with its dataset.
func (c *Core) HasPartition(no PartitionNo) bool { return c.partition(no) != nil }
