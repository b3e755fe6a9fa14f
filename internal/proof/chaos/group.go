package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// The same trouble, with the same truth, for a plain consumer group instead of Headrace.
const (
	groupName   = "chaos-trainers"
	groupRows   = 512
	groupQuiet  = 2 * time.Second // if nothing came for so long, its commits are believed
	topicSpread = 2               // partitions per member
)

// groupSettings sets a short session: with librdkafka's default of 45 s, each death would stop the
// whole group for that long. Commits stay at the default: automatic, every 5 s.
var groupSettings = map[string]string{"session.timeout.ms": "6000"}

// GroupEvery is the mean time between two troubles. With less a consumer group would hardly read:
// when one member dies, the others wait until its session has ended.
const GroupEvery = 8 * time.Second

// RunGroup makes the same trouble for a plain consumer group, whose script is o.Group. Losses and
// repeats are no error: the Result counts them.
func RunGroup(ctx context.Context, o Options) (res Result, err error) {
	began := time.Now()
	res.Model, res.Source, res.Prefetch, res.Seed = "consumer-group", Kafka, o.Prefetch, o.Seed
	root, err := os.MkdirTemp("", "headrace-chaos-")
	if err != nil {
		return res, err
	}
	tell := func(format string, args ...any) {
		_, _ = fmt.Fprintf(o.Out, "%6.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	defer func() {
		if err == nil && len(res.Wrong) == 0 && !o.Keep {
			_ = os.RemoveAll(root)
			return
		}
		tell("everything is kept in %s", root)
	}()
	r := rand.New(rand.NewPCG(o.Seed, 1))
	c := &crew{o: o, dir: root, run: filepath.Base(root), rnd: rand.New(rand.NewPCG(o.Seed, 2)), quit: make(chan struct{})}
	if c.broker, err = startBroker(ctx, Kafka); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, c.broker.close()) }()
	ranks := 3 + r.IntN(2)
	in := newInput(r, 0, 0, root)
	in.name, in.format, in.passes, in.strict, in.shuffle = "chaos", "json", 1, false, false
	in.queue, in.partitions = c.broker.queue, ranks*topicSpread
	if in.records = o.Records; in.records == 0 {
		in.records = int(o.Rate * float64(ranks) * 0.5 * (float64(o.Kills)*o.Every.Seconds() + 2))
	}
	c.inputs = []*input{in}
	if err := c.broker.createTopic(ctx, in.name, in.partitions); err != nil {
		return res, err
	}
	if err := in.produce(ctx, r, 0); err != nil {
		return res, err
	}
	tell("%v", in)
	tell("%s as a group of %d, %d batches read ahead, seed %d", filepath.Base(o.Group), ranks, o.Prefetch, o.Seed)
	t := &trouble{crew: c, rnd: r, tell: tell}
	err = c.liveGroup(ctx, t, ranks)
	c.stopAll()
	if err != nil {
		return res, err
	}
	lives, err := c.readJournals()
	if err != nil {
		return res, err
	}
	res.Verdict = judgeGroup(in, lives)
	res.Wrong = append(c.wrong, res.Wrong...)
	res.Kills, res.Freezes, res.Lives, res.Records = t.kills, t.frozen, len(lives), in.records
	res.Seconds = float64(time.Since(began).Milliseconds()) / 1e3
	return res, nil
}

// liveGroup runs the group from the first process until it has committed every record.
func (c *crew) liveGroup(ctx context.Context, t *trouble, ranks int) error {
	c.mu.Lock()
	for rank := range ranks {
		s := &seat{rank: rank, rate: c.o.Rate}
		c.seats = append(c.seats, s)
		if err := c.startMember(s); err != nil {
			c.mu.Unlock()
			return err
		}
		c.wg.Go(func() { c.keepMember(s) })
	}
	c.mu.Unlock()
	done := func() bool { return c.groupIsDone(ctx) }
	for t.kills < c.o.Kills && !done() && t.pause(ctx, c.o.Every/2, c.o.Every) {
		t.troubleGroup(ctx)
	}
	c.mu.Lock()
	c.calm = true
	c.mu.Unlock()
	t.tell("%d kills and %d freezes are done; waiting for its last commit", t.kills, t.frozen)
	ctx, cancel := context.WithTimeout(ctx, patiences*c.o.Patience)
	defer cancel()
	for !done() || c.quiet() < groupQuiet {
		if !t.pause(ctx, 100*time.Millisecond, 100*time.Millisecond) {
			c.wrongf("the group has not committed every record %v after the last trouble", patiences*c.o.Patience)
			return nil
		}
	}
	return nil
}

// groupIsDone reports whether the group has committed every record. It is false if the broker does
// not answer.
func (c *crew) groupIsDone(ctx context.Context) bool {
	in := c.inputs[0]
	if !c.broker.mu.TryLock() {
		return false
	}
	defer c.broker.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return in.allTold(c.broker.queue.(kafka).offsets(ctx, groupName, in.name, in.partitions))
}

// quiet is how long no journal has grown.
func (c *crew) quiet() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var last time.Time
	for _, s := range c.seats {
		if f, err := os.Stat(c.journal(s.life)); err == nil && f.ModTime().After(last) {
			last = f.ModTime()
		}
	}
	return time.Since(last)
}

func (t *trouble) troubleGroup(ctx context.Context) {
	switch n := t.rnd.IntN(100); {
	case n < 12 && t.killBroker(ctx):
	case n < 75:
		t.killMember()
	case n < 88:
		t.killMember()
		t.killMember()
	default:
		t.freeze(t.someTrainer())
	}
}

func (t *trouble) killMember() {
	v := t.someTrainer()
	if v.p.Ended() {
		return
	}
	v.p.Signal(syscall.SIGKILL)
	t.kills++
	t.tell("kill %s", v.p.Name)
}

// startMember starts the next process of a rank. c.mu is held.
func (c *crew) startMember(s *seat) error {
	s.life = &life{rank: s.rank, no: len(s.lives) + 1, status: "running"}
	s.lives = append(s.lives, s.life)
	text, err := json.Marshal(map[string]any{
		"brokers": c.broker.where(), "topic": c.inputs[0].name, "group": groupName, "settings": groupSettings,
		"rows": groupRows, "rate": s.rate, "prefetch": c.o.Prefetch, "journal": c.journal(s.life),
	})
	if err != nil {
		return err
	}
	s.p, err = c.start(fmt.Sprintf("member-%d", s.rank), []string{"CHAOS_GROUP=" + string(text), "PYTHONUNBUFFERED=1"}, c.o.Python, c.o.Group)
	return err
}

// keepMember starts the next process of a rank whenever one ends.
func (c *crew) keepMember(s *seat) {
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
		c.mu.Lock()
		s.life.ended, s.life.status = p.At, how
		c.mu.Unlock()
		if status >= 0 { // it was not killed
			c.wrongf("%s ended by itself: %s; see %s.log", s.life, how, p.Name)
			return
		}
		if !c.wait(-1) {
			return
		}
		c.mu.Lock()
		err := c.startMember(s)
		c.mu.Unlock()
		if err != nil {
			c.wrongf("%v", err)
			return
		}
	}
}
