package chaos

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/headrace/headrace/internal/proof/child"
)

// Whoever ends is started again, until all is done.

// applyAgain tells a master that has lost its state; until then no trainer starts.
func (c *crew) applyAgain(ctx context.Context, master *child.Process) {
	for !master.Ended() { // its next life is told else
		c.mu.Lock()
		must := c.unapplied
		c.mu.Unlock()
		if !must {
			return
		}
		within, cancel := context.WithTimeout(ctx, applyWithin)
		err := c.apply(within)
		cancel()
		if err == nil {
			c.mu.Lock()
			c.unapplied = false
			c.mu.Unlock()
			return
		}
		select {
		case <-c.quit:
			return
		case <-time.After(collectEvery): // the broker is away
		}
	}
}

// applied waits until the master knows the datasets; false: the run is over.
func (c *crew) applied(ctx context.Context) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		c.mu.Lock()
		yes := !c.unapplied
		c.mu.Unlock()
		if yes {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		case <-c.quit:
			return false
		}
	}
}

// keep starts a master or an agent again. c.mu is held when again is called.
func (c *crew) keep(ctx context.Context, agent int, at **child.Process, again func() (*child.Process, error)) {
	for {
		c.mu.Lock()
		p := *at
		c.mu.Unlock()
		select {
		case <-p.Done:
		case <-c.quit:
			return
		}
		if status, how := p.Status(); status > 0 {
			c.wrongf("%s ended by itself: %s", p.Name, how)
		}
		if !c.wait(agent) {
			return
		}
		c.mu.Lock() // who takes the master's state away first ends everybody
		next, err := again()
		if err == nil {
			*at = next
			c.disturbed = append(c.disturbed, disturbance{from: p.At, to: child.Monotonic(), agent: agent})
		}
		c.mu.Unlock()
		if err != nil {
			c.wrongf("%v", err)
			return
		}
		if agent < 0 {
			c.applyAgain(ctx, next)
		}
	}
}

// wait is the time between an end and the next start: mostly short, sometimes
// longer than a session lives. Of an agent it may be decided. False: there is no next.
func (c *crew) wait(agent int) bool {
	c.mu.Lock()
	d := time.Duration(c.rnd.Int64N(int64(400 * time.Millisecond)))
	if !c.calm && c.rnd.IntN(4) == 0 {
		d = c.o.TTL/2 + time.Duration(c.rnd.Int64N(int64(c.o.TTL)))
	}
	if away, ok := c.absent[agent]; ok {
		d = away
		delete(c.absent, agent)
	}
	c.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.quit:
		return false
	}
}

// keepTrainer starts a rank's next process until one sees the end of data; in a
// replicated job the whole group begins again when one member does.
func (c *crew) keepTrainer(ctx context.Context, s *seat) {
	for {
		c.mu.Lock()
		p := s.p
		c.mu.Unlock()
		select {
		case <-p.Done:
		case <-c.quit:
			return
		}
		status, how := p.Status()
		var err error
		c.mu.Lock()
		s.life.ended, s.life.status = p.At, how
		group := s.group
		s.done = status == 0
		c.mu.Unlock()
		switch status {
		case exitFailed, exitNoDataset, 1, 2:
			c.wrongf("%s failed: %s; see %s.log", s.life, how, p.Name)
		case 0:
			if !c.restarted(group) {
				return
			}
		}
		if status != 0 && !c.wait(-1) || !c.applied(ctx) {
			return
		}
		c.mu.Lock()
		if c.o.Model == "replicated" && s.group == c.group && status != 0 {
			c.group++
			if c.port, err = freePort(); err != nil {
				c.wrong = append(c.wrong, err.Error())
			}
			c.endTrainers()
		}
		s.group = c.group
		err = errors.Join(err, c.startTrainer(s))
		c.mu.Unlock()
		if err != nil {
			c.wrongf("%v", err)
			return
		}
	}
}

// endTrainers kills all that still run: nobody of them writes a file any more. c.mu
// is held.
func (c *crew) endTrainers() {
	for _, s := range c.seats {
		s.p.Signal(syscall.SIGKILL)
	}
	for _, s := range c.seats {
		<-s.p.Done
	}
}

// again has also those start again that have seen the end: what they were done with is gone.
// Of a shared model that is the model, and rank 0, who restores it, may be one of them. Of
// private models it is what the master knew, and a new master waits until all ranks have
// restored. A replicated group begins again with the first of it that was killed. c.mu is held.
func (c *crew) again() {
	if c.o.Model != "replicated" {
		c.group++
	}
}

// restarted waits, for a member that is done, until all are (false) or the group
// begins again.
func (c *crew) restarted(group int) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c.mu.Lock()
		again, all := c.group != group, c.allDone()
		c.mu.Unlock()
		if again || all {
			return again
		}
		select {
		case <-tick.C:
		case <-c.quit:
			return false
		}
	}
}

// allDone: every rank's process has seen the end of data. c.mu is held.
func (c *crew) allDone() bool {
	for _, s := range c.seats {
		if !s.done || s.group != c.group {
			return false
		}
	}
	return true
}

// over: every rank's process has seen the end of data, or was told that all is in.
func (c *crew) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.allDone()
}

// endsWithin is how long whoever is asked to end may take, on a busy machine.
const endsWithin = 30 * time.Second

// release: nobody is looked after any more.
func (c *crew) release() {
	c.released.Do(func() { close(c.quit) })
	c.wg.Wait()
}

// stopAll ends whatever still runs, trainers first, and says who did not listen.
func (c *crew) stopAll() {
	c.release()
	for _, s := range c.seats {
		if s.p == nil { // its first start failed
			continue
		}
		if !s.p.Stop(endsWithin) {
			c.wrongf("%s did not end after SIGTERM", s.p.Name)
		}
		if s.life != nil && s.life.ended == 0 {
			s.life.ended = s.p.At
		}
	}
	for k := range c.agents {
		if c.agents[k] == nil {
			continue
		}
		if c.agents[k].Ended() { // killed when all was done: nobody has started it again
			if p, err := c.startAgent(k); err == nil {
				c.agents[k] = p
			}
		}
		c.listens(k, endsWithin)
	}
	for _, p := range append(c.agents, c.master, c.server) {
		if p == nil {
			continue
		}
		if !p.Stop(endsWithin) {
			c.wrongf("%s did not end after SIGTERM", p.Name)
		}
	}
}

// listens waits until an agent does: one that is ended before it has taken over the
// socket of a killed one leaves that behind.
func (c *crew) listens(k int, patience time.Duration) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && !c.agents[k].Ended(); {
		conn, err := net.Dial("unix", c.socket(k))
		if err == nil {
			_ = conn.Close()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
