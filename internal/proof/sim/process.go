package sim

// process is the common part of master, agents and trainers. It runs on a node, can be killed at any point,
// and can be stopped for a while; then its events wait.
type process struct {
	w       *World
	name    string
	alive   bool
	stopped bool
	backlog []func()
	ended   []func() // called at its end, whatever ended it
	woken   func(since Time)
	caught  func() // called when all waiting events were handled
	since   Time   // stopped since
	woke    Time   // when it was continued last
}

func (p *process) begin(w *World, name string) { p.w, p.name, p.alive = w, name, true }

// run handles an event of the process, now or when it is continued.
func (p *process) run(do func()) {
	switch {
	case !p.alive:
	case p.stopped:
		p.backlog = append(p.backlog, do)
	default:
		do()
	}
}

// after handles an event of the process d from now.
func (p *process) after(d Time, do func()) { p.w.at(p.w.now+d, func() { p.run(do) }) }

// kill is kill -9.
func (p *process) kill(why string) {
	if !p.alive {
		return
	}
	p.w.tracef(p.name, "DIES: %s", why)
	p.alive = false
	p.backlog = nil
	for _, f := range p.ended {
		f()
	}
	p.ended = nil
}

// stop is SIGSTOP for d.
func (p *process) stop(d Time) {
	if !p.alive || p.stopped {
		return
	}
	p.w.tracef(p.name, "stopped for %v", span(d))
	p.stopped, p.since = true, p.w.now
	p.w.at(p.w.now+d, p.cont)
}

func (p *process) cont() {
	if !p.alive || !p.stopped {
		return
	}
	p.w.tracef(p.name, "continued")
	p.stopped, p.woke = false, p.w.now
	if p.woken != nil {
		p.woken(p.since)
	}
	todo := p.backlog
	p.backlog = nil
	for _, do := range todo {
		p.run(do)
	}
	if p.caught != nil {
		p.run(p.caught)
	}
}
