package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/headrace/headrace/internal/proof/child"
)

// A lull: nothing is disturbed until the master knows everything. Then an agent dies. It stays away
// for longer than its session lives, but for less time than it takes to be given up. Meanwhile its
// trainers step on, and end.
//
// Records that they stepped must not come again. The judge can tell this only after a lull: between other
// troubles, something was mostly wrong with that agent or the master shortly before, and that might
// be the reason why a trainer was given up.

// lullMargin: a lull is quiet for told and this much more. letInWithin: time until a trainer is let in.
const (
	lullMargin  = 500 * time.Millisecond
	letInWithin = 2 * time.Second
)

// lullWithin is how long to wait for the quiet. A trap of a trainer that was started before may break it.
const lullWithin = 4 * told

// lullSeconds is about how long a lull takes. All trainers work for most of it.
func (c *crew) lullSeconds() float64 {
	if c.o.Model != "shared" {
		return 0
	}
	return (told + lullMargin + 2*c.o.TTL).Seconds()
}

// mayLull reports whether it is time for the one lull of a shared model's run, after lullAt kills.
func (t *trouble) mayLull() bool {
	return t.o.Model == "shared" && t.lulls == 0 && t.kills >= t.lullAt
}

// lullFile is the file that makes a trainer kill its agent when the next batch is applied.
func (c *crew) lullFile(rank int) string {
	return filepath.Join(c.dir, fmt.Sprintf("lull-%d", rank))
}

// lull waits for the quiet, lets a trainer kill its agent, and waits until the agent is back.
func (t *trouble) lull(ctx context.Context) {
	t.lulls++
	t.tell("lull")
	agent, ok := t.quiet(ctx)
	if !ok {
		t.tell("no lull: it was not quiet for long enough")
		return
	}
	away := t.o.TTL + t.o.TTL/4 + time.Duration(t.rnd.Int64N(int64(t.o.TTL)))
	t.mu.Lock()
	t.absent[agent] = away
	p, under := t.agents[agent], t.trainersOf(agent)
	t.mu.Unlock()
	by := under[t.rnd.IntN(len(under))]
	t.tell("after a lull, %s kills %s for %v when a batch is applied", by.p.Name, p.Name, away.Round(time.Millisecond))
	if err := t.killAtBatch(ctx, p, by); err != nil {
		t.wrongf("%v", err)
		return
	}
	t.kills++
	t.leased++
	if t.rnd.IntN(2) == 0 { // in the other half of the runs they end by themselves, one TTL after they lost their agent
		t.pause(ctx, t.o.TTL/8, t.o.TTL/2)
		for _, v := range under {
			if v.p.Ended() {
				continue
			}
			v.p.Signal(syscall.SIGKILL)
			t.kills++
			t.leased++
			t.tell("kill %s", v.p.Name)
		}
	}
	t.pause(ctx, away, t.o.TTL)
}

// killAtBatch makes a trainer kill its agent after a batch is in the model and before step(). If the
// trainer gets no batch, we kill the agent.
func (t *trouble) killAtBatch(ctx context.Context, agent *child.Process, by target) error {
	path := t.lullFile(by.life.rank)
	if err := os.WriteFile(path+".new", []byte(strconv.Itoa(agent.Pid())), 0o600); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	timer := time.NewTimer(2 * t.o.TTL)
	defer timer.Stop()
	select {
	case <-agent.Done:
	case <-by.p.Done:
	case <-timer.C:
	case <-ctx.Done():
	}
	agent.Signal(syscall.SIGKILL)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// quiet waits until the master, an agent and one of its trainers have run for long enough. It gives
// the agent's number.
func (t *trouble) quiet(ctx context.Context) (agent int, ok bool) {
	for deadline := time.Now().Add(lullWithin); time.Now().Before(deadline) && !t.over() && !t.bad(); {
		h := t.books.leases(ctx)
		t.mu.Lock()
		first := t.rnd.IntN(len(t.agents))
		for i := range t.agents {
			k := (first + i) % len(t.agents)
			if t.undisturbed(k, int64(told+lullMargin)) && h.agents[fmt.Sprintf("agent-%d", k)] && len(t.trainersOf(k)) > 0 {
				t.mu.Unlock()
				return k, true
			}
		}
		t.mu.Unlock()
		if !t.pause(ctx, 50*time.Millisecond, 50*time.Millisecond) {
			break
		}
	}
	return 0, false
}

// undisturbed reports whether an agent and the master have run for the last ns. t.mu is held.
func (t *trouble) undisturbed(agent int, ns int64) bool {
	since := child.Monotonic() - ns
	return t.standing == 0 && !t.master.Ended() && !t.agents[agent].Ended() && t.born <= since &&
		!slices.ContainsFunc(t.disturbed, func(d disturbance) bool {
			return (d.agent < 0 || d.agent == agent) && d.to > since
		})
}

// trainersOf lists the trainers of an agent that have run for long enough. t.mu is held.
func (t *trouble) trainersOf(agent int) (all []target) {
	since := child.Monotonic() - int64(told+letInWithin)
	for _, s := range t.seats {
		if s.life.agent == agent && !s.p.Ended() && s.life.started <= since {
			all = append(all, target{s.p, agent, s.life})
		}
	}
	return all
}
