package chaos

import (
	"context"
	"syscall"
	"time"

	"github.com/headrace/headrace/internal/proof/child"
)

// An input without an end is over when every record is in the models and no process has to go back for
// any. The trainers are then told to end (SIGUSR1), and do what they do at the end of data: they save
// a last checkpoint.

const lookEvery = 300 * time.Millisecond // how often the journals are read

// leastWait: no one knows which record is the last, so a batch must not wait for ever to be full.
func (in *input) leastWait() float64 {
	if in.live {
		return 0.05
	}
	return 0
}

// tellEnough tells every trainer to end once all is in.
func (c *crew) tellEnough(ctx context.Context) {
	c.mu.Lock()
	if time.Since(c.looked) < lookEvery {
		c.mu.Unlock()
		return
	}
	c.looked = time.Now()
	now, paths, restorer := map[*seat]*child.Process{}, []string{}, []string{}
	for _, l := range c.seats[0].lives {
		restorer = append(restorer, c.journal(l))
	}
	server := c.lifeOf
	for _, s := range c.seats {
		if s.p.Ended() && !s.done {
			c.mu.Unlock()
			return // the rank's next process may go back
		}
		if !s.p.Ended() {
			now[s] = s.p
			paths = append(paths, c.journal(s.life))
		}
	}
	c.mu.Unlock()
	for _, path := range paths {
		var l life
		if l.read(path) != nil || !l.joined && c.o.Model == "shared" || l.restores == 0 && c.o.Model != "shared" {
			return // this process may still go back, or an entry is being written
		}
	}
	if !restoredIn(restorer, server) {
		return
	}
	if !c.books.settledAll(ctx, c.inputs) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for s, p := range now {
		if s.p == p && s.told != p {
			s.told = p
			p.Signal(syscall.SIGUSR1)
		}
	}
}

// restoredIn reports whether a journal says that this life of the shared model's server was given a
// model. Before that, the master still counts records that were only in the lost model.
func restoredIn(journals []string, server int) bool {
	if server <= 1 {
		return true // there is no server, or its first life
	}
	for _, path := range journals {
		var l life
		if l.read(path) != nil {
			continue // an entry is being written
		}
		for _, r := range l.restored {
			if r.server == server {
				return true
			}
		}
	}
	return false
}
