package chaos

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// Options of one run.
type Options struct {
	Binary, Python string
	Model          string // shared | private | replicated
	Seed           uint64
	Kills          int           // SIGKILLs to send
	Every          time.Duration // between two troubles, on average
	TTL            time.Duration // of sessions
	Rate           float64       // rows/s of a trainer's stream; the last trainer has a tenth
	Records        int           // 0: about as many as the kills take
	Patience       time.Duration // for the end, after the last trouble
	Keep           bool          // the folder of a run that went well, too
	Out            io.Writer
}

// Result is the last line of a run.
type Result struct {
	Model             string  `json:"model"`
	Seed              uint64  `json:"seed"`
	Kills             int     `json:"kills"`
	KillsOnLeasedWork int     `json:"kills_on_leased_work"`
	Freezes           int     `json:"freezes"`
	Lives             int     `json:"lives"` // processes of trainers
	Records           int     `json:"records"`
	MasterMiB         int     `json:"master_mib"`
	Seconds           float64 `json:"seconds"`
	Verdict
}

// Good: nothing was wrong.
func (r Result) Good() bool { return r.Lost == 0 && r.Twice == 0 && len(r.Wrong) == 0 }

// Limits of what the master may need for so small an input.
const (
	maxMasterMiB        = 256
	maxMasterGoroutines = 80
)

// Run runs one job through its trouble. The error is about the run itself; what
// the job did wrong is in the Result.
func Run(ctx context.Context, o Options) (res Result, err error) {
	began := time.Now()
	res.Model, res.Seed = o.Model, o.Seed
	root, err := os.MkdirTemp("", "headrace-chaos-")
	if err != nil {
		return res, err
	}
	tell := func(format string, args ...any) {
		_, _ = fmt.Fprintf(o.Out, "%6.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	defer func() {
		if err == nil && res.Good() && !o.Keep {
			_ = os.RemoveAll(root)
			return
		}
		tell("everything is kept in %s", root)
	}()
	r := rand.New(rand.NewPCG(o.Seed, 1))
	c := &crew{o: o, dir: root, sockets: filepath.Join(root, "s"), run: filepath.Base(root), rnd: rand.New(rand.NewPCG(o.Seed, 2)), quit: make(chan struct{})}
	if err := c.prepare(r, tell, &res); err != nil {
		return res, err
	}
	defer func() { _ = c.books.conn.Close() }()
	trouble := &trouble{crew: c, rnd: r, tell: tell}
	err = c.live(ctx, trouble, tell, &res)
	c.stopAll()
	if err != nil {
		return res, err
	}
	lives, err := c.readJournals()
	if err != nil {
		return res, err
	}
	res.Verdict = judge(o.Model, c.inputs, lives, c.disturbed)
	res.Wrong = slices.Concat(c.wrong, res.Wrong, left(c.run, c.sockets, filepath.Join(root, "state")), cries(root))
	res.Kills, res.KillsOnLeasedWork, res.Freezes, res.Lives = trouble.kills, trouble.leased, trouble.frozen, len(lives)
	res.Seconds = float64(time.Since(began).Milliseconds()) / 1e3
	return res, nil
}

// prepare makes data, folders and the crew.
func (c *crew) prepare(r *rand.Rand, tell func(string, ...any), res *Result) (err error) {
	if err := os.Mkdir(c.sockets, 0o700); err != nil {
		return err
	}
	ranks := 3 + r.IntN(2)
	c.agents = make([]*process, 2+r.IntN(2))
	total := c.o.Records
	if total == 0 { // so that the trouble takes about as long as the reading
		total = int(c.o.Rate * float64(ranks-1) * 0.5 * (float64(c.o.Kills)*c.o.Every.Seconds()*1.3 + 2))
	}
	n := 1 + r.IntN(2)
	for k := range n {
		in := newInput(r, k, 0, c.dir)
		in.records = total / n / in.passes
		if err := in.write(r); err != nil {
			return err
		}
		c.inputs = append(c.inputs, in)
		res.Records += in.records * in.passes
		tell("%v", in)
	}
	tell("model %s, seed %d, %d trainers on %d agents, sessions of %v", c.o.Model, c.o.Seed, ranks, len(c.agents), c.o.TTL)
	if c.address, err = freeAddress(); err != nil {
		return err
	}
	if c.books, err = openBooks(c.address); err != nil {
		return err
	}
	c.seats = make([]*seat, 0, ranks)
	return c.writeTrainer()
}

// live is the run from the first process to the end of data.
func (c *crew) live(ctx context.Context, t *trouble, tell func(string, ...any), res *Result) error {
	if err := c.startAll(ctx, cap(c.seats)); err != nil {
		return err
	}
	t.run(ctx)
	c.mu.Lock()
	c.calm = true
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.o.Patience)
	defer cancel()
	if err := t.resumeAll(ctx); err != nil {
		return fmt.Errorf("seed %d: %w", c.o.Seed, err)
	}
	tell("%d kills and %d freezes are done; waiting for the end of data", t.kills, t.frozen)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-ctx.Done():
			c.wrongf("no end of data %v after the last trouble: %s", c.o.Patience, c.who())
			return nil
		case <-tick.C:
			c.mu.Lock()
			over = c.allDone()
			c.mu.Unlock()
		}
	}
	for _, w := range c.books.balance(ctx, c.inputs) {
		c.wrongf("%s", w)
	}
	c.mu.Lock()
	pid := c.master.cmd.Process.Pid
	c.mu.Unlock()
	if res.MasterMiB = resident(pid); res.MasterMiB > maxMasterMiB {
		c.wrongf("the master needs %d MiB", res.MasterMiB)
	}
	if n, text := c.books.goroutines(ctx); n > maxMasterGoroutines {
		c.wrongf("the master has %d goroutines: %.2000s", n, text)
	}
	return nil
}

// who has not ended.
func (c *crew) who() (text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.seats {
		text += " rank " + strconv.Itoa(s.rank) + " done=" + strconv.FormatBool(s.done)
	}
	return text
}

// freeAddress finds a port that the master can come back to.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// Add sums up runs.
func (r *Result) Add(o Result) {
	r.Kills += o.Kills
	r.KillsOnLeasedWork += o.KillsOnLeasedWork
	r.Freezes += o.Freezes
	r.Lives += o.Lives
	r.Records += o.Records
	r.MasterMiB = max(r.MasterMiB, o.MasterMiB)
	r.Seconds += o.Seconds
	r.Lost += o.Lost
	r.Twice += o.Twice
	r.SharedRepeats += o.SharedRepeats
	r.OfThemStepped += o.OfThemStepped
	r.Wrong = append(r.Wrong, o.Wrong...)
}
