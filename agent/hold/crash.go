package hold

import pb "github.com/headrace/headrace/api/headrace/v1"

// inHand is what a process that has crashed had in hand: delivered, and not stepped. One
// of those records may be why.
func (w *worker) inHand() *pb.Crash {
	c, rows := &pb.Crash{}, int64(0)
	for _, s := range w.streams {
		for i := s.takesStepped; i < s.takes.len(); i++ {
			q := s.takes.at(i)
			l := q.l
			from, to := max(q.from, l.stepped), min(q.to, l.end)
			if l.dead || from >= to {
				continue
			}
			if q.told {
				rows += q.Rows
			} else {
				rows += 2 // at least one, and nobody knows that it is only one
			}
			if n := len(c.Suspects); n > 0 {
				if x := c.Suspects[n-1]; x.Dataset == s.dataset && x.Partition == l.partition && x.Pass == l.pass && x.Segment == l.segment && x.End == from {
					x.End = to
					continue
				}
			}
			c.Suspects = append(c.Suspects, &pb.Crash_Suspect{Dataset: s.dataset, Partition: l.partition, Pass: l.pass, Segment: l.segment, Start: from, End: to})
		}
	}
	if len(c.Suspects) == 0 {
		return nil
	}
	c.Alone = rows == 1
	return c
}
