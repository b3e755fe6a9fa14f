package sim

import (
	"github.com/headrace/headrace/agent/hold"
	"github.com/headrace/headrace/shardsvc/cut"
)

// timeOf is the event time of a record, in any pass. Some records have none.
func (in *input) timeOf(record int32) int64 {
	n := int64(record) % int64(in.total)
	if n%5 == 4 {
		return 0
	}
	return 1 + n*7919%10007
}

// tally is what an agent counts of the records that it hands out.
func (in *input) tally(records []int32) hold.Tally {
	t := hold.Tally{Rows: int64(len(records))}
	for _, r := range records {
		t.Seen(in.timeOf(r))
	}
	return t
}

// checkRecords checks that a cut gives the right number of records of each partition and their first and last
// event time, whatever went wrong before.
func (b *books) checkRecords(t *trainer, body *cut.Cut, in []bool) {
	for i := range body.Datasets {
		for j := range body.Datasets[i].Partitions {
			q := &body.Datasets[i].Partitions[j]
			var want hold.Tally
			for _, s := range b.w.input.part(q.Identity).segs {
				for pass := 0; pass*b.w.input.total < len(in); pass++ {
					for k := range s.begins {
						if r := pass*b.w.input.total + s.first + k; in[r] && b.w.reads(q.Identity, r) {
							want.Rows++
							want.Seen(b.w.input.timeOf(int32(r)))
						}
					}
				}
			}
			if got := q.Records(); got != (cut.Tally{Rows: want.Rows, Oldest: want.Oldest, Newest: want.Newest}) {
				b.w.fail("%s: cut %x at step %d says that %s has the records %+v, want %+v", t.name, uint64(body.ID), body.Step, q.Identity, got, want)
			}
		}
	}
}
