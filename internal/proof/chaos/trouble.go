package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/proof/child"
)

// trouble makes trouble for the processes of a run, and counts it.
type trouble struct {
	*crew
	rnd     *rand.Rand
	kills   int // SIGKILLs sent
	leased  int // of these: to processes that held leases, or to agents of such trainers
	frozen  int
	damaged int // checkpoints that were damaged
	rewound int // times that a person went back to a checkpoint
	emptied int // times that the master lost its state
	pinned  []string
	away    int // nodes that were lost with their memory
	flips   int // bits that were flipped in slots
	lulls   int
	lullAt  int // the lull comes after so many kills
	tell    func(string, ...any)
}

// run makes trouble until o.Kills processes are killed, or all trainers have seen the end of data.
func (t *trouble) run(ctx context.Context) {
	until := time.Now().Add(troubleWithin(t.o))
	for t.kills < t.o.Kills && time.Now().Before(until) && t.pause(ctx, 50*time.Millisecond, t.o.Every*2) {
		if t.over() || t.bad() {
			return
		}
		if t.empties && t.emptied == 0 && t.kills > t.o.Kills/2 && t.allSaved() {
			t.loseState(ctx)
			continue
		}
		if t.mayLull() {
			t.lull(ctx)
			continue
		}
		if t.people(ctx) {
			continue
		}
		switch n := t.rnd.IntN(100); {
		case t.broker != nil && n < 8 && t.killBroker(ctx):
		case n < 16 && t.mayDamage() && t.damage(ctx):
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

// troubleWithin is the longest time that all the trouble may take.
func troubleWithin(o Options) time.Duration {
	return time.Minute + time.Duration(o.Kills)*(2*o.Every+2*o.TTL)
}

// people lets a person do something, in some turns of a run that tests this.
func (t *trouble) people(ctx context.Context) bool {
	switch n := t.rnd.IntN(100); {
	case t.pins && n < 10:
		return t.pin(ctx)
	case t.rewinds && n >= 10 && n < 20:
		return t.rewind(ctx)
	case t.memory && n >= 25 && n < 37:
		return t.loseNode(ctx)
	case t.memory && n >= 37 && n < 45:
		return t.flip(ctx)
	case t.memory && n >= 45 && n < 55:
		a := t.someTrainer()
		t.kill(ctx, a, t.agentUnder(a))
		return true
	case t.servers && n >= 20 && n < 25:
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.allDone() { // no process would be left to restore it
			return false
		}
		t.tell("kill server")
		t.again()
		t.kills++
		t.server.Signal(syscall.SIGKILL)
		return true
	}
	return false
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

// target is the process to hit, as it is now.
type target struct {
	p     *child.Process
	agent int // the agent's number, for a trainer that of its agent; -1: the master
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

// kill kills all targets at once.
func (t *trouble) kill(ctx context.Context, all ...target) {
	held := t.atWork(ctx, all)
	var names []string
	for _, v := range all {
		if v.p.Ended() {
			continue
		}
		v.p.Signal(syscall.SIGKILL)
		names = append(names, v.p.Name)
		t.kills++
		if held.of(v) {
			t.leased++
		}
	}
	if len(names) > 0 {
		t.tell("kill %s", strings.Join(names, ", "))
	}
}

// atWork mostly waits until one of the targets holds leases: a process that has only just started loses
// nothing by its death.
func (t *trouble) atWork(ctx context.Context, all []target) held {
	waits := t.rnd.IntN(5) > 0
	deadline := time.Now().Add(2 * t.o.TTL)
	for {
		h := t.books.leases(ctx)
		works := slices.ContainsFunc(all, func(v target) bool { return !v.p.Ended() && h.of(v) })
		if works || !waits || time.Now().After(deadline) || !t.pause(ctx, 20*time.Millisecond, 60*time.Millisecond) {
			return h
		}
	}
}

// mayDamage reports whether checkpoints are restored from files that we can damage.
func (t *trouble) mayDamage() bool {
	return !t.o.Journal && t.o.Model != "shared" && t.saves != carriedCut
}

// damage kills a rank, or in a replicated job the group, and damages its newest checkpoint before a
// process restores it. So the one before it must be restored.
func (t *trouble) damage(ctx context.Context) bool {
	v := t.someTrainer()
	t.kill(ctx, v)
	t.mu.Lock() // no process is started meanwhile
	defer t.mu.Unlock()
	rank := v.life.rank
	if t.o.Model == "replicated" {
		rank = -1
	}
	t.end(rank)
	t.disturbMemory(rank, -1)
	path, err := t.cutShort(rank)
	if err != nil {
		t.wrong = append(t.wrong, err.Error())
	}
	if path != "" {
		t.damaged++
		t.tell("damage %s", filepath.Base(filepath.Dir(path)))
	}
	return true
}

// end kills the process of a rank that runs now, or with -1 those of all ranks, and waits until it has
// ended. t.mu is held.
func (t *trouble) end(rank int) {
	for _, s := range t.seats {
		if rank < 0 || s.rank == rank {
			s.p.Signal(syscall.SIGKILL)
			<-s.p.Done
		}
	}
}

// freeze stops a process for a while, often for longer than its session lives.
func (t *trouble) freeze(v target) {
	d := t.o.TTL/5 + time.Duration(t.rnd.Int64N(int64(2*t.o.TTL)))
	if v.p.Ended() {
		return
	}
	t.frozen++
	t.tell("freeze %s for %v", v.p.Name, d.Round(time.Millisecond))
	from := child.Monotonic()
	t.mu.Lock()
	if v.life != nil {
		v.life.frozen = true
	}
	t.standing++
	t.mu.Unlock()
	v.p.Signal(syscall.SIGSTOP)
	t.wg.Go(func() { // ends with the freeze, or the run
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-t.quit:
		case <-v.p.Done:
		}
		v.p.Signal(syscall.SIGCONT)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.standing--
		stood := disturbance{from: from, to: child.Monotonic(), agent: v.agent}
		if v.life != nil {
			v.life.stood = append(v.life.stood, stood)
		} else {
			t.disturbed = append(t.disturbed, stood)
		}
	})
}

// ask asks a master or an agent to end.
func (t *trouble) ask(v target) {
	if v.p.Ask() {
		t.tell("ask %s to end", v.p.Name)
	}
}

// pauseDataset pauses a random dataset for a while. If its master dies meanwhile, the dataset may
// stay paused until resumeAll, after all trouble.
func (t *trouble) pauseDataset(ctx context.Context) {
	name := t.inputs[t.rnd.IntN(len(t.inputs))].name
	tried := func(what string, ask func(context.Context) error) {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		t.tell("%s %s", what, name)
		if err := ask(call); err != nil {
			t.tell("%s: %v", what, err)
		}
	}
	tried("pause", func(ctx context.Context) error {
		_, err := t.books.api.Pause(ctx, &headracev1.PauseRequest{Name: name})
		return err
	})
	t.pause(ctx, 0, t.o.TTL)
	tried("resume", func(ctx context.Context) error {
		d, err := t.books.api.Describe(ctx, &headracev1.DescribeRequest{Name: name})
		if err != nil || d.State != "paused" { // one that failed stays as it is: see resumeAll
			return err
		}
		_, err = t.books.api.Resume(ctx, &headracev1.ResumeRequest{Name: name})
		return err
	})
}

// resumeAll resumes datasets that are paused or done. A done one may be paused as well: it would stand
// still if a model went back to a checkpoint before its end. A dataset that failed is not resumed: that
// would hide the fault.
func (t *trouble) resumeAll(ctx context.Context) error {
	if !t.applied(ctx) {
		return fmt.Errorf("a master that lost its state has not been told the datasets again: %w", ctx.Err())
	}
	for _, in := range t.inputs {
		d, err := asked(ctx, t.books.api.Describe, &headracev1.DescribeRequest{Name: in.name})
		if err != nil {
			return err
		}
		if d.State != "paused" && d.State != "done" {
			continue
		}
		if _, err := asked(ctx, t.books.api.Resume, &headracev1.ResumeRequest{Name: in.name}); err != nil {
			return fmt.Errorf("resuming %s: %w", in.name, err)
		}
	}
	return nil
}
