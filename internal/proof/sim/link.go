package sim

// link is a connection: messages arrive in order, after a while, unless it
// breaks first. Then each side has got as much as had arrived until some moment of
// its own, and learns of the break at its own time: what was sent may have arrived
// or not, and the other side cannot know. Whoever says it again on the next
// connection may say it for the second time.
type link struct {
	w        *World
	min, max Time // one way
	far      bool // between nodes: what a process that dies has sent may be lost
	ends     [2]end
	held     Time // a partition holds messages until then
}

type end struct {
	p      *process
	last   Time // when the newest message on its way to this end arrives
	shut   bool // this end is closed, or was told
	until  Time // what arrives later is lost
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

// lose: what arrives at an end later than d from now is lost.
func (l *link) lose(at int, d Time) {
	l.ends[at].until = min(l.ends[at].until, l.w.now+d)
}

func (l *link) arrival(to int) Time {
	e := &l.ends[to]
	e.last = max(e.last, max(l.w.now, l.held)+l.w.time(l.min, l.max))
	return e.last
}

// send to the other side of from.
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

// hangUp closes one end in order: what it has sent arrives, then the news.
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

// tear breaks the connection. The ends learn of it after a and b; either may go on
// hearing the other for a part of that time.
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

// hold keeps all messages for a while, as a partition does that ends in time.
func (l *link) hold(until Time) { l.held = max(l.held, until) }
