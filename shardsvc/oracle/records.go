package oracle

// Count of records, as an ack tells them: how many there are, how many units nobody
// told of, and of the rest the oldest and the newest time, if one has any.
type Count struct {
	Rows, Untold   int64
	Oldest, Newest int64
}

// Record says what lies at a unit of the input: by its place alone, whatever the
// pass. Some units hold none; some records have no time.
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

// CountOf are the records in ranges of the input.
func CountOf(rs []Range) (n Count) {
	for _, r := range rs {
		for o := r.Start; o < r.End; o++ {
			n.add(unitKey{r.Partition, r.Pass, r.Segment, o})
		}
	}
	return n
}

// Count are the records of a set, by partition. Those of the units in untold nobody
// told.
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

// Untold are the units of a set whose records were not told when they were acked.
func (b *Book) Untold(s Set) Set {
	some := Set{}
	for k := range s {
		if u := b.units[k]; u != nil && u.untold {
			some[k] = true
		}
	}
	return some
}

// Acked is all that is in a model now.
func (b *Book) Acked() Set { return b.Members(Group, 1<<62) }
