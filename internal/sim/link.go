package sim

// link is a connection: messages arrive in order, after a while, unless it
// breaks first. Each side learns of the break at its own time.
type link struct {
	w        *World
	min, max Time // one way
	ends     [2]end
	held     Time // a partition holds messages until then
}

type end struct {
	p      *process
	last   Time // when the newest message on its way to this end arrives
	shut   bool // this end is closed, or was told
	lost   bool // what is on its way to this end is lost
	take   func(msg any)
	broken func()
}

func (w *World) newLink(least, most Time, a, b *process) *link {
	l := &link{w: w, min: least, max: most}
	l.ends[0].p, l.ends[1].p = a, b
	for side := range l.ends {
		p := l.ends[side].p
		p.ended = append(p.ended, func() { l.hangUp(side) })
	}
	return l
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
		if !e.lost {
			e.p.run(func() {
				if !e.shut && !e.lost {
					e.take(msg)
				}
			})
		}
	})
}

// hangUp closes one end in order: what it has sent arrives, then the news.
func (l *link) hangUp(side int) {
	if l.ends[side].shut {
		return
	}
	l.ends[side].shut = true
	l.ends[side].lost = true
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

// tear breaks the connection: what is on its way is lost, and the ends learn of
// it after a and b.
func (l *link) tear(a, b Time) {
	l.ends[0].lost, l.ends[1].lost = true, true
	l.w.at(l.w.now+a, func() { l.told(0) })
	l.w.at(l.w.now+b, func() { l.told(1) })
}

// hold keeps all messages for a while, as a partition does that ends in time.
func (l *link) hold(until Time) { l.held = max(l.held, until) }
