package chaos

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/headrace/headrace/internal/proof/child"
	"github.com/headrace/headrace/internal/proof/testbroker"
)

// A process that ends is started again, until all is done.

// applyAgain tells the datasets to a master that has lost its state. No trainer starts before that.
func (c *crew) applyAgain(ctx context.Context, master *child.Process) {
	for !master.Ended() { // if this master ends, the next one is told by another call
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

// keep starts a master or an agent again. again is called with c.mu held.
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
		c.mu.Lock() // loseState holds c.mu from before it ends all processes until the state is removed
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

// wait waits between the end of a process and its next start: mostly a short time, sometimes longer
// than a session lives. c.absent may say how long for an agent. False: the run is over.
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

// keepTrainer starts a rank's next process, until one sees the end of data. If one member of a
// replicated group ends, the whole group starts again.
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
			if c.port, err = testbroker.FreePort(); err != nil {
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

// endTrainers kills all trainers and waits for their ends, so that none writes a file any more. c.mu
// is held.
func (c *crew) endTrainers() {
	for _, s := range c.seats {
		s.p.Signal(syscall.SIGKILL)
	}
	for _, s := range c.seats {
		<-s.p.Done
	}
}

// again makes ranks start again that have seen the end, because what they had finished is lost. With
// a shared model the model is lost, and rank 0, which restores it, may be done. With private models
// the master's state is lost, and a new master waits until all ranks have restored. A replicated
// group starts again anyway, with its first killed member. c.mu is held.
func (c *crew) again() {
	if c.o.Model != "replicated" {
		c.group++
	}
}

// restarted waits in a rank that is done. False: all ranks are done, or the run is over. True: the rank
// has to start again.
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

// allDone reports whether every rank's process has seen the end of data. c.mu is held.
func (c *crew) allDone() bool {
	for _, s := range c.seats {
		if !s.done || s.group != c.group {
			return false
		}
	}
	return true
}

// over reports whether every rank's process has seen the end of data, or was told that all is in.
func (c *crew) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.allDone()
}

// endsWithin is how long a process may take to end after SIGTERM, on a busy machine.
const endsWithin = 30 * time.Second

// release stops the goroutines that start processes again.
func (c *crew) release() {
	c.released.Do(func() { close(c.quit) })
	c.wg.Wait()
}

// stopAll ends all processes that still run, trainers first. A process that ignores SIGTERM is a fault.
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
		if c.agents[k].Ended() { // it was killed when all was done, so it was not started again
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

// listens waits until an agent listens. An agent that is ended before it has taken over the socket of
// a killed one leaves that socket behind.
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
