package hold

import pb "github.com/headrace/headrace/api/headrace/v1"

// headSeen notes where the input of a lease ends for now, as its reader says. If a lease
// ends ahead of head, only records below head count as work. So a stream whose readers all
// wait asks for more: records may be in other partitions.
//
// A reader may see a lower head than the master: it sees no records of an open transaction of
// Kafka. The master hears of a new head with the next message. If the head has reached the
// end of the lease, it hears at once, because no worker has the records after that end yet.
func (c *Core) headSeen(l *lease, ev *HeadSeen) {
	if l.dead || l.met && ev.Head < l.head {
		return
	}
	reached := ev.Head >= l.end && (l.head == Never || l.head < l.end)
	if (l.head == Never || ev.Head > l.head) && !l.news {
		l.news = true
		c.heads = append(c.heads, l)
	}
	l.head, l.met, l.waits, l.ahead = ev.Head, true, ev.Waits, false
	if reached && c.talking() {
		c.message()
	}
	c.want(l.s)
}

// openingMost bounds how many leases of a stream may begin at the head that the master knows
// while their readers have not said yet that they wait there. There is more than one, because a
// source may need a tenth of a second to open a reader, and a stream may have hundreds of
// partitions. Without a bound, a stream would take partitions from other trainers before it is
// known that it has nothing to read.
const openingMost = 16

// waits says whether the stream's readers only wait at heads, or are expected to: none of them
// has anything to read.
func (s *stream) waits() bool {
	some, opening := false, 0
	for _, l := range s.leases {
		if l.tail != Never {
			continue
		}
		if l.ahead {
			opening++
		} else if !l.waits {
			return false
		}
		some = true
	}
	return some && opening < openingMost
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
