package oracle

// Count counts records as acks do. Untold is the number of units whose acks did not say
// how many records they have. Oldest and Newest are event times of the other records; 0
// and 0 if none has a time.
type Count struct {
	Rows, Untold   int64
	Oldest, Newest int64
}

// Record says whether a record begins at a unit of the input, and its event time; 0 is
// none. It depends on the place alone, so it is the same in every pass.
func Record(partition uint32, segment, offset int64) (row bool, time int64) {
	x := uint64(partition)*0x9e3779b97f4a7c15 + uint64(segment)*0xbf58476d1ce4e5b9 + uint64(offset)*0x94d049bb133111eb
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 32
	if x%5 == 0 {
		return false, 0
	}
	if x%3 == 0 {
		return true, 0
	}
	return true, int64(x>>8%1_000_000) - 500_000
}

func (n *Count) add(k unitKey) {
	row, at := Record(k.partition, k.segment, k.offset)
	if !row {
		return
	}
	n.Rows++
	switch {
	case at == 0:
	case n.Oldest == 0 && n.Newest == 0:
		n.Oldest, n.Newest = at, at
	default:
		n.Oldest, n.Newest = min(n.Oldest, at), max(n.Newest, at)
	}
}

// CountOf counts the records in ranges of the input.
func CountOf(rs []Range) (n Count) {
	for _, r := range rs {
		for o := r.Start; o < r.End; o++ {
			n.add(unitKey{r.Partition, r.Pass, r.Segment, o})
		}
	}
	return n
}

// Count counts the records of a set, by partition. The units in untold are counted as
// untold.
func (s Set) Count(untold Set) map[uint32]Count {
	all := map[uint32]Count{}
	for k := range s {
		n := all[k.partition]
		if untold[k] {
			n.Untold++
		} else {
			n.add(k)
		}
		all[k.partition] = n
	}
	return all
}

// Untold returns the units of s whose acks did not say how many records they have.
func (b *Book) Untold(s Set) Set {
	some := Set{}
	for k := range s {
		if u := b.units[k]; u != nil && u.untold {
			some[k] = true
		}
	}
	return some
}

// Acked returns all units that are in a model now.
func (b *Book) Acked() Set { return b.Members(Group, 1<<62) }
