package hold

import pb "github.com/headrace/headrace/api/headrace/v1"

// headSeen: of a lease that ends ahead of head only what is there counts as work.
// A stream whose readers all wait wants more: records may be in other partitions.
// The master hears of heads with what is said anyway, and at once where the lease's
// end is reached, because what lies behind it is nobody's yet.
func (c *Core) headSeen(l *lease, ev *HeadSeen) {
	if l.dead || l.head != Never && ev.Head < l.head {
		return
	}
	reached := ev.Head >= l.end && (l.head == Never || l.head < l.end)
	if l.head != ev.Head && !l.news {
		l.news = true
		c.heads = append(c.heads, l)
	}
	l.head, l.waits = ev.Head, ev.Waits
	if reached && c.talking() {
		c.message()
	}
	c.want(l.s)
}

// waits: readers of the stream wait at heads, and none has anything to read.
func (s *stream) waits() bool {
	some := false
	for _, l := range s.leases {
		if l.tail == Never && !l.waits {
			return false
		}
		some = some || l.tail == Never
	}
	return some
}

func (c *Core) appendHeads(m *pb.AgentMessage) {
	for _, l := range c.heads {
		if l.news = false; !l.dead {
			m.Heads = append(m.Heads, &pb.Head{Partition: l.partition, Segment: l.segment, End: l.head})
		}
	}
	clear(c.heads)
	c.heads = c.heads[:0]
}
