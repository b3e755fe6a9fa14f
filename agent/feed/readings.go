package feed

import (
	"context"
	"slices"

	"github.com/headrace/headrace/sources"
)

// A stream reads one lease at a time, in the order of their grants. It opens the next
// lease while it decodes the last records of the one before, because opening a range may
// take a round trip. A stream of live input reads one lease in each partition, side by side,
// because each may wait at its head. A stream of a bounded topic may read several partitions
// side by side (Kind.SideBySide), because a broker may give one partition more slowly than a
// trainer takes it.

// take gets the next chunk. It returns false if something else happened first.
func (c *cutter) take(ctx context.Context) bool {
	for k := range c.rds {
		rd := c.rds[(c.turn+k)%len(c.rds)]
		select {
		case ch, ok := <-rd.out:
			c.turn = (c.turn + k + 1) % len(c.rds)
			return c.taken(rd, ch, ok)
		default:
		}
	}
	c.timer.Reset(until(c.deadline()))
	select {
	case <-c.came:
	case <-c.st.wakeCut:
	case <-c.timer.C:
	case <-ctx.Done():
	}
	c.overdue()
	return false
}

func (c *cutter) taken(rd *reading, ch chunk, ok bool) bool {
	if !ok {
		c.drop(rd)
		if rd.complete {
			c.leaseEnd(rd.l)
		}
		return false
	}
	c.rd, c.chunk, c.at = rd, ch, 0
	return true
}

// open makes the readings those of the given leases: it starts missing ones and stops all
// others. A reading that waits at the head for records that were stolen, or in a segment
// that was sealed, would otherwise wait for ever.
func (c *cutter) open(ctx context.Context) {
	for _, rd := range c.stale() {
		c.drop(rd)
		if rd.l.round == c.round && c.overtaken(rd.l) {
			c.leaseEnd(rd.l)
		} // else it is read again below, to the new end, or not now
	}
	for _, l := range c.now {
		if l.rd != nil || c.adopt(l) {
			continue
		}
		c.st.mu.Lock()
		from, end, dry := l.read, l.end, l.dry
		c.st.mu.Unlock()
		if !dry {
			l.rd = startReading(ctx, c.st.ds, c.st.t.srv.cfg.Desk, l, from, end, c.came, &c.spare)
			c.rds = append(c.rds, l.rd)
		}
	}
	c.readAhead(ctx)
}

// stale returns the readings of leases that are not read now, and of live leases whose end was
// moved back. For example, lease [100, 300) was read to 200, positions [200, 210) hold no record,
// and the segment was sealed at 210. Its reading waits for a record after 210, which never comes.
// A new reading that ends at 210 finds that there is none. There may be hundreds of readings, and
// stale is called for each chunk.
func (c *cutter) stale() (all []*reading) {
	c.st.mu.Lock()
	defer c.st.mu.Unlock()
	for _, rd := range c.rds {
		if rd.l.round != c.round || c.live && (rd.l.read >= rd.l.end || rd.l.end < rd.end) {
			all = append(all, rd)
		}
	}
	return all
}

// adopt takes over the reading that was begun ahead of l.
func (c *cutter) adopt(l *lease) bool {
	rd := c.ahead
	if rd == nil {
		return false
	}
	c.st.mu.Lock()
	from := l.read
	c.st.mu.Unlock()
	if rd.l != l || rd.from != from {
		c.stopAhead()
		return false
	}
	c.rds, c.ahead, l.rd = append(c.rds, rd), nil, rd
	return true
}

// readAhead opens the next lease once the source has given all of the one before.
func (c *cutter) readAhead(ctx context.Context) {
	if c.ahead != nil || len(c.rds) != 1 || !c.rds[0].atEnd.Load() || c.live {
		return
	}
	var next *lease
	c.st.mu.Lock()
	if i := slices.Index(c.st.leases, c.rds[0].l) + 1; i > 0 && i < len(c.st.leases) && !c.st.leases[i].dry && !c.st.recut {
		next = c.st.leases[i]
	}
	if next == nil {
		c.st.mu.Unlock()
		return
	}
	from, end := next.read, next.end
	c.st.mu.Unlock()
	c.ahead = startReading(ctx, c.st.ds, c.st.t.srv.cfg.Desk, next, from, end, c.came, &c.spare)
}

func (c *cutter) stopAhead() {
	if c.ahead != nil {
		c.ahead.stop(nil, &c.spare)
		c.ahead = nil
	}
}

// overtaken says whether the end of a live lease was moved back to a position that is read already.
func (c *cutter) overtaken(l *lease) bool {
	c.st.mu.Lock()
	defer c.st.mu.Unlock()
	return c.live && l.read >= l.end
}

func (c *cutter) stopReading() {
	for len(c.rds) > 0 {
		c.drop(c.rds[0])
	}
}

// drop stops one of the readings.
func (c *cutter) drop(rd *reading) {
	var held *sources.Batch
	if c.rd == rd {
		held = c.chunk.batch
	}
	rd.stop(held, &c.spare)
	rd.l.rd = nil
	c.rds = slices.DeleteFunc(c.rds, func(o *reading) bool { return o == rd })
	if c.rd == rd {
		c.rd, c.chunk, c.at = nil, chunk{}, 0
	}
}
