package sim

// link is a connection. Messages arrive in order, after a delay, unless it breaks first. When it breaks, each
// side has received what had arrived until some moment, and learns of the break at a time of its own. So
// neither side knows whether its last messages have arrived. A message that is repeated on the next
// connection may arrive twice.
type link struct {
	w        *World
	min, max Time // one way
	far      bool // between nodes: the last messages of a dying process may be lost
	ends     [2]end
	held     Time // messages wait until then, in a partition of the network
}

type end struct {
	p      *process
	last   Time // when the newest message to this end arrives
	shut   bool // this end is closed, or knows of the break
	until  Time // messages that arrive later are lost
	take   func(msg any)
	broken func()
}

func (w *World) newLink(least, most Time, a, b *process) *link {
	l := &link{w: w, min: least, max: most}
	l.ends[0].until, l.ends[1].until = never, never
	l.ends[0].p, l.ends[1].p = a, b
	for side := range l.ends {
		p := l.ends[side].p
		p.ended = append(p.ended, func() {
			if l.far && w.oneIn(2) {
				l.lose(1-side, w.time(0, most))
			}
			l.hangUp(side)
		})
	}
	return l
}

// lose makes messages to an end that arrive later than d from now get lost.
func (l *link) lose(at int, d Time) {
	l.ends[at].until = min(l.ends[at].until, l.w.now+d)
}

func (l *link) arrival(to int) Time {
	e := &l.ends[to]
	e.last = max(e.last, max(l.w.now, l.held)+l.w.time(l.min, l.max))
	return e.last
}

// send sends to the side opposite of `from`.
func (l *link) send(from int, msg any) {
	if l.ends[from].shut {
		return
	}
	e := &l.ends[1-from]
	l.w.at(l.arrival(1-from), func() {
		if l.w.now > e.until {
			return
		}
		e.p.run(func() {
			if !e.shut {
				e.take(msg)
			}
		})
	})
}

// hangUp closes one end in order: first all that it sent arrives, then the news of the end.
func (l *link) hangUp(side int) {
	if l.ends[side].shut {
		return
	}
	l.ends[side].shut = true
	l.w.at(l.arrival(1-side), func() { l.told(1 - side) })
}

func (l *link) told(side int) {
	e := &l.ends[side]
	e.p.run(func() {
		if e.shut {
			return
		}
		e.shut = true
		if e.broken != nil {
			e.broken()
		}
	})
}

// tear breaks the connection. The ends learn of it after a and b. During that time an end may still hear
// the other.
func (l *link) tear(a, b Time) {
	for side, d := range []Time{a, b} {
		hears := Time(0)
		if l.w.oneIn(2) {
			hears = l.w.time(0, d)
		}
		l.lose(side, hears)
		l.w.at(l.w.now+d, func() { l.told(side) })
	}
}

// hold delays all messages, as a network partition does that ends before the connection breaks.
func (l *link) hold(until Time) { l.held = max(l.held, until) }
