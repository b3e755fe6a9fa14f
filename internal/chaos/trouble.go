package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

// trouble is what a run has in store.
type trouble struct {
	*crew
	rnd    *rand.Rand
	kills  int // SIGKILLs sent
	leased int // of them to who held leases, or whose trainers did
	frozen int
	tell   func(string, ...any)
}

// run makes trouble until so many were killed, or all have seen the end.
func (t *trouble) run(ctx context.Context) {
	for t.kills < t.o.Kills && t.pause(ctx, 50*time.Millisecond, t.o.Every*2) {
		t.mu.Lock()
		over := t.allDone()
		t.mu.Unlock()
		if over {
			return
		}
		switch n := t.rnd.IntN(100); {
		case n < 32:
			t.kill(ctx, t.someTrainer())
		case n < 46:
			t.kill(ctx, t.someAgent())
		case n < 58:
			t.kill(ctx, t.theMaster())
		case n < 70:
			t.kill(ctx, t.several()...)
		case n < 78:
			t.freeze(t.someTrainer())
		case n < 85:
			t.freeze(t.someAgent())
		case n < 90:
			t.freeze(t.theMaster())
		case n < 94:
			t.pauseDataset(ctx)
		case n < 97:
			t.ask(t.someAgent())
		default:
			t.ask(t.theMaster())
		}
	}
}

func (t *trouble) pause(ctx context.Context, least, more time.Duration) bool {
	timer := time.NewTimer(least + time.Duration(t.rnd.Int64N(int64(more))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// target is a process as it is when it is hit.
type target struct {
	p     *process
	agent int // its number, or its trainer's agent; -1: the master
	life  *life
}

func (t *trouble) someTrainer() target {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.seats[t.rnd.IntN(len(t.seats))]
	return target{s.p, s.life.agent, s.life}
}

func (t *trouble) someAgent() target {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.rnd.IntN(len(t.agents))
	return target{t.agents[k], k, nil}
}

func (t *trouble) theMaster() target {
	t.mu.Lock()
	defer t.mu.Unlock()
	return target{t.master, -1, nil}
}

func (t *trouble) several() []target {
	all := []target{t.someTrainer()}
	switch t.rnd.IntN(4) {
	case 0:
		all = append(all, t.someAgent())
	case 1:
		all = append(all, t.theMaster())
	case 2:
		all = append(all, t.someAgent(), t.theMaster())
	case 3:
		return []target{t.someAgent(), t.theMaster()}
	}
	return all
}

// kill hits all at once.
func (t *trouble) kill(ctx context.Context, all ...target) {
	held := t.books.leases(ctx)
	var names []string
	for _, v := range all {
		if v.p.ended() {
			continue
		}
		v.p.signal(syscall.SIGKILL)
		names = append(names, v.p.name)
		t.kills++
		if held.of(v) {
			t.leased++
		}
	}
	if len(names) > 0 {
		t.tell("kill %s", strings.Join(names, ", "))
	}
}

// freeze stops a process for a while, often for longer than its session lives.
func (t *trouble) freeze(v target) {
	d := t.o.TTL/5 + time.Duration(t.rnd.Int64N(int64(2*t.o.TTL)))
	if v.p.ended() {
		return
	}
	t.frozen++
	t.tell("freeze %s for %v", v.p.name, d.Round(time.Millisecond))
	from := monotonic()
	t.mu.Lock()
	if v.life != nil {
		v.life.frozen = true
	} else {
		t.disturbed = append(t.disturbed, disturbance{from: from, to: from + int64(d+3*time.Second), agent: v.agent})
	}
	t.mu.Unlock()
	v.p.signal(syscall.SIGSTOP)
	t.wg.Go(func() { // ends with the freeze, or the run
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-t.quit:
		case <-v.p.done:
		}
		v.p.signal(syscall.SIGCONT)
	})
}

// ask has a master or an agent end in order.
func (t *trouble) ask(v target) {
	t.tell("ask %s to end", v.p.name)
	v.p.signal(syscall.SIGTERM)
}

// pauseDataset pauses one, and lets it go on.
func (t *trouble) pauseDataset(ctx context.Context) {
	name := t.inputs[t.rnd.IntN(len(t.inputs))].name
	call, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	t.tell("pause %s", name)
	if _, err := t.books.api.Pause(call, &headracev1.PauseRequest{Name: name}); err != nil {
		t.tell("pause: %v", err)
	}
	t.pause(ctx, 0, t.o.TTL)
}

// resumeAll: what was paused goes on. A dataset that has ended is not resumed.
func (t *trouble) resumeAll(ctx context.Context) error {
	for _, in := range t.inputs {
		d, err := asked(ctx, t.books.api.Describe, &headracev1.DescribeRequest{Name: in.name})
		if err != nil {
			return err
		}
		if d.State != "paused" {
			continue
		}
		if _, err := asked(ctx, t.books.api.Resume, &headracev1.ResumeRequest{Name: in.name}); err != nil {
			return fmt.Errorf("resuming %s: %w", in.name, err)
		}
	}
	return nil
}
