package shardsvc

import "github.com/headrace/headrace/sources"

// Segments lists at most max (0: all) segments of a partition with ID > after, in order. A
// source that numbers segments itself gets them when it is opened again.
func (lg *ledger) Segments(no PartitionNo, after int64, max int) []sources.Segment {
	p := lg.partition(no)
	if p == nil {
		return nil
	}
	var out []sources.Segment
	for i := range p.Segs {
		s := &p.Segs[i]
		if s.ID <= after {
			continue
		}
		if max > 0 && len(out) == max {
			break
		}
		out = append(out, sources.Segment{ID: s.ID, Start: s.Start, End: s.End, Sealed: s.Sealed, Locator: s.Locator, Name: s.Name})
	}
	return out
}

// HasPartition says whether a partition is known: not removed with its dataset.
func (lg *ledger) HasPartition(no PartitionNo) bool { return lg.partition(no) != nil }

// OfSource returns the partitions that list the same segments as no: those of all virtual
// ranks of a bit_exact dataset, else no alone. The caller may keep it for a Step.
func (lg *ledger) OfSource(no PartitionNo) (all []PartitionNo) {
	p := lg.partition(no)
	if p == nil {
		return nil
	}
	if p.virtual == 0 { // without this, listing the segments of n partitions would take n*n looks
		return []PartitionNo{no}
	}
	for _, q := range p.ds.parts {
		if q.source == p.source {
			all = append(all, q.no)
		}
	}
	return all
}

// LastSegment is the newest segment of a partition that is known, -1: none.
func (lg *ledger) LastSegment(no PartitionNo) int64 {
	if p := lg.partition(no); p != nil {
		return p.LastSeg
	}
	return -1
}

// NextDataset is the number of the next new dataset.
func (lg *ledger) NextDataset() DatasetID { return lg.nextDS }

// NextPartition is the number of the next new partition.
func (lg *ledger) NextPartition() PartitionNo { return lg.nextPart }
