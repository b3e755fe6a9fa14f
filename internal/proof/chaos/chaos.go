package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/proof/child"
	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Options are the settings of one run.
type Options struct {
	Binary, Python string
	Model          string // shared | private | replicated
	Source         string // Files, Landing, or a kind of broker
	Live           bool   // of a broker: the topics are written while they are read
	Journal        bool   // trainers save nothing; their journal is their model
	Group          string // the script of a plain consumer group: see RunGroup
	Prefetch       int    // batches that the consumer group reads ahead
	Seed           uint64
	Kills          int           // SIGKILLs to send
	Every          time.Duration // mean time between two troubles
	TTL            time.Duration // --session-ttl of the master
	Rate           float64       // rows/s of a trainer's stream; the last trainer has a tenth
	Records        int           // 0: about as many as the trainers read while the kills are sent
	Patience       time.Duration // time without progress, after the last trouble, until the run has failed
	Draw           []string      // choices that this run has, whatever the seed says
	Verbose        bool          // of a campaign: print the events of its rounds too
	Keep           bool          // keep the folder of a good run too
	Out            io.Writer     // gets each event as a line, as events.log does
}

// Result is what a run found. It is printed as the last line.
type Result struct {
	Model             string  `json:"model"`
	Source            string  `json:"source"`
	Prefetch          int     `json:"prefetch,omitempty"` // of a consumer group
	Seed              uint64  `json:"seed"`
	Kills             int     `json:"kills"`
	KillsOnLeasedWork int     `json:"kills_on_leased_work"`
	KillsAtPoints     int     `json:"kills_at_points"`          // of the kills: those at a named point
	PushersKilled     int     `json:"pushers_killed,omitempty"` // not counted in kills; nearly all died between two of their calls
	Freezes           int     `json:"freezes"`
	Lives             int     `json:"lives"` // trainer processes that were started
	Records           int     `json:"records"`
	MasterMiB         int     `json:"master_mib"`
	AgentMiB          int     `json:"agent_mib"`
	Seconds           float64 `json:"seconds"`
	Saves
	InMemory
	GivenUp int            `json:"given_up"`         // processes that the master gave up because it had heard nothing of them for too long
	Points  map[string]int `json:"points,omitempty"` // kills by point and victim
	Folder  string         `json:"folder,omitempty"` // of a run in which something was wrong
	Drawn   []string       `json:"drawn,omitempty"`  // the choices of the run, see choices.go
	Stood   []string       `json:"-"`                // the report of a run that hung
	// Only in the sum of several rounds:
	Rounds  int            `json:"rounds,omitempty"`
	DrawnIn map[string]int `json:"drawn_in,omitempty"` // how many rounds had each choice
	Again   []string       `json:"again,omitempty"`    // commands that repeat the failed rounds
	Verdict
}

// Good reports whether nothing was wrong.
func (r Result) Good() bool { return r.Lost == 0 && r.Twice == 0 && len(r.Wrong) == 0 }

// The master must not need more than this for so small an input.
const (
	maxMasterMiB        = 256
	maxAgentMiB         = 256
	maxMasterGoroutines = 80
)

// Run runs one job through its trouble. The Result says what the job did wrong. The error says why
// the run itself could not be done.
func Run(ctx context.Context, o Options) (res Result, err error) {
	began := time.Now()
	res.Model, res.Source, res.Seed = o.Model, o.Source, o.Seed
	root, err := os.MkdirTemp("", "headrace-chaos-")
	if err != nil {
		return res, err
	}
	events, err := os.Create(filepath.Join(root, "events.log"))
	if err != nil {
		return res, err
	}
	defer func() { _ = events.Close() }()
	both := io.MultiWriter(events, o.Out)
	tell := func(format string, args ...any) { // one write per event, so that lines of parallel runs do not mix
		_, _ = fmt.Fprintf(both, "%6.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	defer func() {
		if err == nil && res.Good() && !o.Keep {
			_ = os.RemoveAll(root)
			return
		}
		res.Folder = root
		tell("everything is kept in %s", root)
	}()
	r := rand.New(rand.NewPCG(o.Seed, 1))
	c := &crew{o: o, dir: root, data: root, sockets: filepath.Join(root, "s"), run: filepath.Base(root), rnd: rand.New(rand.NewPCG(o.Seed, 2)), damaged: map[cut.ID]bool{}, absent: map[int]time.Duration{}, quit: make(chan struct{})}
	switch o.Source {
	case Files:
	case Landing:
		c.broker = &broker{queue: &landing{c: c}}
		defer func() { err = errors.Join(err, c.broker.close()) }()
	default:
		if c.broker, err = startBroker(ctx, o.Source); err != nil {
			return res, err
		}
		defer func() { err = errors.Join(err, c.broker.close()) }()
		tell("a broker at %s", c.broker.where())
	}
	if err := c.prepare(ctx, r, tell, &res); err != nil {
		return res, err
	}
	defer func() { _ = c.books.conn.Close() }()
	trouble := &trouble{crew: c, rnd: r, tell: tell, lullAt: r.IntN(max(1, o.Kills/2))}
	if c.memory {
		if err := c.makeMemory(r, tell); err != nil {
			return res, err
		}
		defer func() { err = errors.Join(err, c.removeMemory()) }()
	}
	err = c.live(ctx, trouble, tell, &res)
	c.release()
	if c.stuck {
		res.Stood = c.postMortem(tell)
	}
	c.stopAll()
	if err != nil {
		return res, err
	}
	lives, err := c.readJournals()
	if err != nil {
		return res, err
	}
	if o.Journal {
		res.Verdict = judge(o.Model, c.inputs, lives, c.excuses())
	} else if err := c.judgeSaves(ctx, lives, &res); err != nil {
		return res, err
	}
	trouble.keptPins(&res.Verdict)
	trouble.keptFew(lives, &res.Verdict)
	if c.rounds && !c.exact { // judgeExact checks the steps of exact jobs, whose ranks write nothing down for a step without records
		res.judgeRounds(lives, c.disturbed)
	}
	if c.exact {
		if err := c.judgeExact(ctx, lives, &res.Verdict); err != nil {
			return res, err
		}
	}
	res.Wrong = slices.Concat(c.wrong, res.Wrong)
	if !c.stuck { // postMortem asked its processes for their stacks, so they cleaned nothing up
		res.Wrong = append(res.Wrong, append(left(c.run, c.sockets, filepath.Join(root, "state")), cries(root)...)...)
	}
	res.Kills, res.KillsOnLeasedWork = trouble.kills+res.KillsAtPoints, trouble.leased+res.KillsAtPoints
	res.Damaged, res.Pins, res.Rewinds, res.EmptyMasters = trouble.damaged, len(trouble.pinned), trouble.rewound, trouble.emptied
	res.GivenUp = c.lost
	res.Nodes, res.Flips = trouble.away, trouble.flips
	if l, ok := c.pushers(); ok {
		res.PushersKilled = l.died
	}
	res.Freezes, res.Lives = trouble.frozen, len(lives)
	res.Seconds = float64(time.Since(began).Milliseconds()) / 1e3
	return res, nil
}

// prepare makes the data, the folders and the crew.
func (c *crew) prepare(ctx context.Context, r *rand.Rand, tell func(string, ...any), res *Result) (err error) {
	for _, folder := range []string{c.sockets, c.archive(), c.pids()} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			return err
		}
	}
	c.choices = draw(c.o, rand.New(rand.NewPCG(c.o.Seed, 3)))
	if c.broker != nil && !c.broker.exact() {
		c.choices.exact = false
	}
	res.Drawn = c.words()
	ranks := 3 + r.IntN(2)
	if !c.o.Journal && c.o.Model == "replicated" {
		ranks = 3
	}
	c.agents = make([]*child.Process, 2+r.IntN(2))
	n := 1 + r.IntN(2)
	if c.exact || c.rounds && c.o.Live { // a step is one list of batches, or one round, of one dataset
		n = 1
	}
	for k := range n {
		in := newInput(r, k, 0, c.dir)
		if c.exact {
			in.setExact(ranks + r.IntN(4))
		}
		if c.drops {
			in.setDrops()
		}
		if c.o.Live {
			in.setLive()
		}
		in.records = c.enough(in, n, ranks) / in.passes
		if err := c.fill(ctx, r, in); err != nil {
			return err
		}
		c.inputs = append(c.inputs, in)
		res.Records += in.records * in.passes
		tell("%v", in)
	}
	tell("model %s, seed %d, %d trainers on %d agents, sessions of %v, %s", c.o.Model, c.o.Seed, ranks, len(c.agents), c.o.TTL, strings.Join(c.words(), " "))
	port, err := testbroker.FreePort()
	if err != nil {
		return err
	}
	c.address = local(port)
	if c.books, err = openBooks(c.address, filepath.Join(c.dir, "state")); err != nil {
		return err
	}
	c.seats = make([]*seat, 0, ranks)
	return c.writeTrainer()
}

// enough is the number of records for one of n inputs. The trouble should take about as long as
// the reading, and in half of that time no trainer reads.
func (c *crew) enough(in *input, n, ranks int) int {
	if c.o.Records > 0 {
		return c.o.Records / n
	}
	readers := float64(ranks-1) * 4 / 3 // the last trainer is slow; some have two streams
	switch {
	case in.strict:
		readers = 1
	case c.o.Model == "replicated":
		readers = float64(ranks-1) / float64(n)
	}
	if c.servers {
		readers /= 2 // all trainers go back to a checkpoint, several times
	}
	return int(c.o.Rate * readers * (0.4*(float64(c.o.Kills)*c.o.Every.Seconds()*1.3+2) + c.lullSeconds()))
}

// patience is how long the end may take, with time for everything: after the last trouble one trainer
// may have to read all records, on a busy machine.
func (c *crew) patience() time.Duration {
	seconds := 0.0
	for _, in := range c.inputs {
		seconds += float64(in.records*in.passes) / (c.o.Rate / 2)
	}
	return c.o.Patience + time.Duration(seconds*float64(time.Second))
}

// fill writes the input. If the input is written while it is read, fill only starts that.
func (c *crew) fill(ctx context.Context, r *rand.Rand, in *input) error {
	if c.broker == nil {
		return in.write(r)
	}
	in.queue = c.broker.queue
	if err := c.broker.createTopic(ctx, in.name, in.partitions); err != nil {
		return err
	}
	if !in.live {
		return in.produce(ctx, r, 0)
	}
	rate := float64(in.records) / (float64(c.o.Kills)*c.o.Every.Seconds()*1.3 + 2)
	own := rand.New(rand.NewPCG(c.o.Seed, r.Uint64()))
	ctx, cancel := context.WithCancel(ctx)
	c.producing.Add(1)
	c.wg.Go(func() { // ends after the last record, or with the run
		defer cancel()
		defer c.producing.Add(-1)
		if err := in.produce(ctx, own, rate); err != nil && ctx.Err() == nil {
			c.wrongf("%v", err)
		}
	})
	c.wg.Go(func() { // ends with the producer, or with the run
		defer cancel()
		select {
		case <-c.quit:
		case <-ctx.Done():
		}
	})
	return nil
}

// live runs the job from its first process to the end of data.
func (c *crew) live(ctx context.Context, t *trouble, tell func(string, ...any), res *Result) error {
	if err := c.startAll(ctx, cap(c.seats)); err != nil {
		return err
	}
	t.run(ctx)
	c.mu.Lock()
	c.calm = true
	c.mu.Unlock()
	resume, resumed := context.WithTimeout(ctx, patiences*c.patience())
	err := t.resumeAll(resume)
	resumed()
	if err != nil {
		return fmt.Errorf("seed %d: %w", c.o.Seed, err)
	}
	tell("%d kills and %d freezes are done; waiting for the end of data", t.kills, t.frozen)
	if !c.ends(ctx) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patiences*c.patience())
	defer cancel()
	for _, w := range c.books.balance(ctx, c.inputs) {
		c.wrongf("%s", w)
	}
	if c.commitsBound() && !c.drops { // no checkpoint may list the dropped records: see drops.go
		c.committedAll(ctx)
	}
	c.mu.Lock()
	pid := c.master.Cmd.Process.Pid
	for _, a := range c.agents {
		res.AgentMiB = max(res.AgentMiB, resident(a.Cmd.Process.Pid))
	}
	c.mu.Unlock()
	if res.AgentMiB > maxAgentMiB {
		c.wrongf("an agent uses %d MiB, more than the limit of the test", res.AgentMiB)
	}
	if res.MasterMiB = resident(pid); res.MasterMiB > maxMasterMiB {
		c.wrongf("the master uses %d MiB, more than the limit of the test", res.MasterMiB)
	}
	if n, text := c.books.goroutines(ctx); n > maxMasterGoroutines {
		c.wrongf("the master has %d goroutines, more than the limit of the test: %.2000s", n, text)
	}
	return nil
}

// who lists the ranks, and which are done.
func (c *crew) who() (text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.seats {
		text += " rank " + strconv.Itoa(s.rank) + " done=" + strconv.FormatBool(s.done)
	}
	return text
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
