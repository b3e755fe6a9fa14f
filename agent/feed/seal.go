package feed

import "time"

// batchFull seals the frame when it is large enough for size or pace.
func (c *cutter) batchFull() {
	c.partial = time.Time{}
	rows := c.w.b.Rows()
	if c.full.IsZero() {
		c.full = time.Now()
	}
	st := c.st
	st.mu.Lock()
	want := max(1, min(st.pace*frameTime.Seconds(), (st.window+1)/2))
	st.mu.Unlock()
	switch {
	case float64(rows/st.rows) >= want || c.w.b.Size() >= frameBytes:
		c.seal(rows)
	case rows+st.rows > c.w.b.Limit():
		st.pool.Grow()
		c.seal(rows)
	default:
		c.overdue()
	}
}

// seal queues the frame's first n rows; the rest begins the next one.
func (c *cutter) seal(n int) {
	w, partial := c.w, c.partial
	c.w, c.full, c.partial, c.left = nil, time.Time{}, time.Time{}, time.Now()
	if n < w.b.Rows() {
		c.w, c.partial = c.st.split(w, n/w.rows), partial
	}
	w.bytes = int64(w.b.Size())
	c.st.account(w.bytes)
	c.st.mu.Lock()
	c.st.queue = append(c.st.queue, w)
	c.st.queued += w.batches()
	c.st.mu.Unlock()
	poke(c.st.wakeSend)
}

// endTransaction lets rows leave sooner when all leases of pushed records are read and the master
// has no others. Records are pushed in whole transactions, so no more come until another one is
// committed. max_wait then counts from the frame before the unfinished batch, if that is earlier
// than the batch's first row. For example, max_wait is 10 ms and the last frame was sealed 90 ms
// ago: the batch leaves now. There is still at most one short batch in each max_wait. Full batches
// do not linger.
func (c *cutter) endTransaction() {
	st := c.st
	st.mu.Lock()
	whole := st.allOut && st.ds.Spec.Kind().Pushed
	st.mu.Unlock()
	if !whole || c.w == nil {
		return
	}
	if !c.partial.IsZero() && c.left.Before(c.partial) {
		c.partial = c.left
	}
	if c.overdue(); c.w != nil && !c.full.IsZero() {
		c.seal(c.w.b.Rows() / st.rows * st.rows)
	}
}

// deadline is when the waiting rows must leave: full batches after linger, an unfinished
// one after max_wait. Zero: nothing waits.
func (c *cutter) deadline() time.Time {
	var d time.Time
	if !c.full.IsZero() {
		d = c.full.Add(c.st.t.srv.cfg.Linger)
	}
	if c.st.maxWait > 0 && !c.partial.IsZero() {
		if p := c.partial.Add(c.st.maxWait); d.IsZero() || p.Before(d) {
			d = p
		}
	}
	return d
}

// overdue sends what has waited long enough.
func (c *cutter) overdue() {
	if c.w == nil || c.w.b.Rows() == 0 {
		return
	}
	now := time.Now()
	if c.st.maxWait > 0 && !c.partial.IsZero() && now.Sub(c.partial) >= c.st.maxWait {
		c.seal(c.w.b.Rows())
		return
	}
	if !c.full.IsZero() && now.Sub(c.full) >= c.st.t.srv.cfg.Linger {
		c.seal(c.w.b.Rows() / c.st.rows * c.st.rows)
	}
}
