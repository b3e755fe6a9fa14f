package shardsvc

import "github.com/headrace/headrace/shardsvc/line"

// NeedInfo is the oldest position of a partition that may still be read, in the
// source's own coordinates.
type NeedInfo struct {
	Partition PartitionNo
	Identity  string
	Source    string // its identity without the virtual rank
	Label     string // what people call the partition
	Segment   int64
	Offset    int64
	End       int64 // where the last listed segment ends; 2^60 while it grows
}

// Needed says for each partition of a dataset from which position on the source must keep
// its records. That is its RetainMark. If all of the partition will be read again, or in
// another order, it is the beginning. A partition that needs nothing more is left out.
func (ck *checkpoints) Needed(id DatasetID) []NeedInfo {
	marks := ck.RetainMarks(id)
	var all []NeedInfo
	for i := range marks {
		m := &marks[i]
		p := ck.ledger.partition(m.Partition)
		lastPass := m.Pass+1 >= uint32(p.ds.opt.Passes)
		if lastPass && m.Units == 0 && p.Complete {
			continue
		}
		n := NeedInfo{m.Partition, m.Identity, p.source, p.label(), m.Segment, m.Offset, p.Segs[len(p.Segs)-1].End}
		if m.Shuffled || !lastPass {
			n.Segment, n.Offset = p.Segs[0].ID, p.Segs[0].Start
		}
		if p.Growing() {
			n.End = line.Max
		}
		all = append(all, n)
	}
	return all
}
