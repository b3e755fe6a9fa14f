package shardsvc

// lease is the right of one process to [start, end) of the line of a pass. Everything
// below prefix is settled. A lease lies in one segment. Example: lease [100, 200) with
// prefix 150: [100, 150) is settled, [150, 200) is leased.
type lease struct {
	token              Token
	pass               *pass
	w                  *holder
	start, prefix, end int64
	shift              int64 // line position minus offset in order space
	segment            int64
	step               int64
	tries              tries
	granted            Time
	frontier           int64 // delivered up to here, as its last Held said
	asserted           bool  // in the message at hand

	asked      bool // a steal ask is out
	askAt      int64
	thief      *holder // for whom the holder was asked
	refusals   uint8
	stealAfter Time

	slot                       uint32 // of the table
	wprev, wnext, pprev, pnext *lease
}

// tries counts how often a range was handed out and lost (the low 16 bits) and how often
// it could not be read (the 14 bits above). The two highest bits are its suspicion.
type tries uint32

const (
	suspicionAt = 30
	maxFailed   = 1<<14 - 1
)

func (t tries) lost() uint32     { return uint32(t & 0xffff) }
func (t tries) failures() uint32 { return uint32(t>>16) & maxFailed }

// forgiven is t without its failures.
func (t tries) forgiven() tries { return t &^ (maxFailed << 16) }

func (t tries) oneMore(failed bool) tries {
	lost, failures := min(t.lost()+1, 0xffff), t.failures()
	if failed {
		failures = min(failures+1, maxFailed)
	}
	return tries(failures<<16|lost) | t&(3<<suspicionAt)
}

// line turns an offset of order space that somebody sent into a position on the line. An
// offset outside of the lease stays outside, however large it is.
func (l *lease) line(offset int64) int64 {
	return min(max(offset, l.start-l.shift-1), max(l.end, l.prefix)-l.shift+1) + l.shift
}

// newLease opens a lease; the units must be in no other state.
func (lg *ledger) newLease(ps *pass, w *holder, start, end int64, t tries) *lease {
	return lg.open(lg.leases.take(lg.epoch, lg.term), ps, w, start, end, t)
}

// open gives [start, end) to w as l.
func (lg *ledger) open(l *lease, ps *pass, w *holder, start, end int64, t tries) *lease {
	l.pass, l.w, l.start, l.prefix, l.end, l.tries, l.granted = ps, w, start, start, end, t, lg.now
	l.frontier = start
	if at := ps.StartPlace(start); ps.Order == nil {
		l.segment, l.shift = at.Segment, start-at.Offset
	}
	if ps.leases != nil {
		ps.leases.pprev = l
	}
	l.pnext, ps.leases = ps.leases, l
	ps.leaseCount++
	if !w.busy() {
		w.since = lg.now
	}
	if w.leases != nil {
		w.leases.wprev = l
	}
	l.wnext, w.leases = w.leases, l
	w.leaseCount++
	ps.leasedUnits += ps.Units(start, end)
	d := ps.p.ds
	d.leases++
	if d.opt.Strict {
		ps.p.holder = w
		ps.p.holderHas++
	}
	if w.stallAt == 0 && d.opt.Stall > 0 {
		lg.watchStall(w)
	}
	return l
}

// unlink closes l; its units must have been settled or given back.
func (lg *ledger) unlink(l *lease) {
	ps, w := l.pass, l.w
	if l.pprev == nil {
		ps.leases = l.pnext
	} else {
		l.pprev.pnext = l.pnext
	}
	if l.pnext != nil {
		l.pnext.pprev = l.pprev
	}
	if l.wprev == nil {
		w.leases = l.wnext
	} else {
		l.wprev.wnext = l.wnext
	}
	if l.wnext != nil {
		l.wnext.wprev = l.wprev
	}
	l.pprev, l.pnext, l.wprev, l.wnext = nil, nil, nil, nil
	ps.leaseCount--
	w.leaseCount--
	p := ps.p
	p.ds.leases--
	if p.ds.opt.Strict {
		if p.holderHas--; p.holderHas == 0 {
			p.holder = nil
		}
		lg.kick(p.ds)
	}
	l.asked = false
	lg.leases.close(l)
}

// forget makes l's token unknown. Its range must have another state by now, or its dataset
// is gone.
func (lg *ledger) forget(l *lease) {
	lg.unlink(l)
	lg.leases.erase(l.slot)
}
