package sim

// watchdog is the client's watchdog (connectors/python, _watchdog.py): it decides how long the process may go
// on without its agent.
type watchdog struct {
	ttl     Time
	shared  bool
	heard   Time // SEND time of the newest answered PING
	session Time // how long the agent's session was good then
	sent    Time // the newest PING
	asked   Time // the oldest unanswered PING; 0: there is none
	grace   Time // after its own process was stopped it asks once more, and waits until then
}

func newWatchdog(w *World, heard Time) watchdog {
	ttl := w.plan.ttl
	d := watchdog{ttl: ttl, shared: w.plan.model == shared, heard: heard, session: ttl, sent: heard - ttl}
	d.lateSince(heard, w.now)
	return d
}

// lateSince: for that time the process asked nothing, because it was stopped. A healthy session may seem to
// have ended meanwhile.
func (d *watchdog) lateSince(since, now Time) {
	if now-since > d.ttl/2 {
		d.grace = now + min(250*millisecond, d.ttl/20)
	}
}

func (d *watchdog) answered(m pong) {
	if m.t < d.heard {
		return
	}
	d.heard, d.session = m.t, m.session
	if d.asked = 0; m.t < d.sent {
		d.asked = d.sent
	}
}

// trust is the earliest time at which the agent's session may end, as far as we know.
func (d *watchdog) trust() Time { return d.heard + min(d.ttl-d.ttl/10, d.session) }

func (d *watchdog) deadline() Time { return d.heard + min(d.ttl, d.session) - d.ttl/10 }

// due is when to send the next PING. One is sent when the session may be over.
func (d *watchdog) due() Time {
	due := d.sent + d.ttl/5
	if trust := d.trust(); d.sent < trust {
		return min(due, trust)
	}
	return due
}

// ends is when the process has to end if it hears nothing more.
func (d *watchdog) ends(connected bool) Time {
	if !connected {
		return d.deadline()
	}
	ends := never
	if d.asked > 0 {
		ends = max(d.deadline(), d.asked+d.ttl/5)
	}
	if d.shared && d.session > 0 {
		ends = min(ends, d.trust()+d.ttl/20)
	}
	return max(ends, d.grace)
}

// control is the control thread's turn. It reads the messages that have come before it judges.
func (t *trainer) control() { t.after(0, t.turn) }

func (t *trainer) turn() {
	now, connected := t.w.now, t.l != nil && t.welcomed
	ends := t.heard + 30*second // no agent has let it in
	if t.generation != 0 {
		ends = t.ends(connected)
	}
	if now >= ends {
		t.kill("its agent was not heard for too long")
		return
	}
	wait := min(t.ttl/10, ends-now)
	if connected {
		if now >= t.due() {
			t.sent = now
			if t.asked == 0 {
				t.asked = now
			}
			t.l.send(0, ping{now})
		}
		wait = min(wait, t.due()-now, t.ends(true)-now)
	}
	t.after(max(millisecond, wait), t.control)
}

// continued: after a stop the watchdog asks once more before it judges, if there is an agent to ask.
func (t *trainer) continued(since Time) {
	t.lateSince(since, t.w.now)
	if t.agent != nil && !t.agent.alive && t.generation != 0 && t.w.now > t.deadline() {
		t.kill("it was stopped for too long")
	}
}
