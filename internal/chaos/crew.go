package chaos

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

//go:embed trainer.py
var trainerSource []byte

// Exit statuses of trainer.py.
const (
	exitRefused   = 3
	exitNoAgent   = 4
	exitFailed    = 5
	exitNoDataset = 6
	exitLeft      = 7
)

// crew is who there is. Each seat is looked after by one goroutine, which starts
// its process again whenever it ends, after a while.
type crew struct {
	o       Options
	dir     string
	sockets string
	run     string // of mark
	address string
	books   *books
	inputs  []*input

	mu        sync.Mutex
	rnd       *rand.Rand // of what happens in seats: guarded by mu
	calm      bool       // no more waiting before a start
	master    *process
	agents    []*process
	seats     []*seat
	disturbed []disturbance
	wrong     []string
	group     int // start of the group, for `replicated`
	wg        sync.WaitGroup
	quit      chan struct{} // closed: nobody is started again
}

// seat is a rank: its processes follow each other.
type seat struct {
	rank  int
	p     *process
	life  *life
	lives []*life
	rate  float64
	done  bool // its last process saw the end of data
	group int
}

func (c *crew) wrongf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

func (c *crew) socket(k int) string { return filepath.Join(c.sockets, fmt.Sprintf("a%d.sock", k)) }

func (c *crew) startMaster() (*process, error) {
	return start(c.dir, "master", c.run, nil, c.o.Binary, "master", "--job", "chaos", "--model", c.o.Model,
		"--state", filepath.Join(c.dir, "state"), "--listen", c.address, "--http", "127.0.0.1:0",
		"--session-ttl", c.o.TTL.String(), "--allow-root", c.dir, "--log-level", "debug")
}

func (c *crew) startAgent(k int) (*process, error) {
	return start(c.dir, fmt.Sprintf("agent-%d", k), c.run, nil, c.o.Binary, "agent", "--job", "chaos", "--name", fmt.Sprintf("agent-%d", k),
		"--master", c.address, "--socket", c.socket(k), "--allow-root", c.dir, "--state", filepath.Join(c.dir, "state"), "--log-level", "debug")
}

type slot struct {
	Dataset string  `json:"dataset"`
	Number  int     `json:"number"`
	Lines   bool    `json:"lines"`
	Rows    int     `json:"rows"`
	Rate    float64 `json:"rate"`
	Ack     string  `json:"ack"`
	MaxWait float64 `json:"max_wait"`
	Closes  bool    `json:"closes"`
}

// startTrainer starts the next process of a rank on any agent. c.mu is held.
func (c *crew) startTrainer(s *seat) (err error) {
	r := c.rnd
	s.life = &life{rank: s.rank, no: len(s.lives) + 1, agent: r.IntN(len(c.agents)), status: "running"}
	s.lives = append(s.lives, s.life)
	var slots []slot
	for d, in := range c.inputs {
		for range 1 + r.IntN(3)/2 {
			ack := "step"
			if c.o.Model == "shared" && r.IntN(5) == 0 {
				ack = "auto"
			}
			rate := s.rate
			if in.strict { // it has one holder at a time, and that may be the slow one
				rate = c.o.Rate
			}
			slots = append(slots, slot{
				Dataset: in.name, Number: d, Lines: in.format == "lines", Rows: 16 + r.IntN(48), Rate: rate, Ack: ack,
				MaxWait: float64(r.IntN(2)) * 0.05, Closes: ack == "step" && r.IntN(3) == 0,
			})
			if in.strict {
				break // two streams of a trainer would be two orders
			}
		}
	}
	text, err := json.Marshal(map[string]any{
		"seed": r.Uint32(), "journal": c.journal(s.life), "model": c.o.Model, "slots": slots, "leaves": c.o.Model != "replicated" && !c.calm,
	})
	if err != nil {
		return err
	}
	s.p, err = start(c.dir, fmt.Sprintf("trainer-%d", s.rank), c.run, []string{
		"CHAOS_TRAINER=" + string(text), "HEADRACE_JOB=chaos", "HEADRACE_AGENT=" + c.socket(s.life.agent),
		"HEADRACE_RANK=" + strconv.Itoa(s.rank), "HEADRACE_WORLD_SIZE=" + strconv.Itoa(len(c.seats)),
		"HEADRACE_ATTEMPT=" + strconv.Itoa(s.life.no-1),
		"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "PYTHONUNBUFFERED=1",
	}, c.o.Python, filepath.Join(c.dir, "trainer.py"))
	return err
}

func (c *crew) journal(l *life) string {
	return filepath.Join(c.dir, fmt.Sprintf("rank-%d-%d.journal", l.rank, l.no))
}

// startAll starts all and looks after them until quit is closed.
func (c *crew) startAll(ctx context.Context, ranks int) (err error) {
	if c.master, err = c.startMaster(); err != nil {
		return err
	}
	if err := c.books.answers(ctx); err != nil {
		return err
	}
	for _, in := range c.inputs {
		if _, err := c.books.api.Apply(ctx, &headracev1.ApplyRequest{Yaml: in.yaml()}); err != nil {
			return fmt.Errorf("applying %s: %w", in.name, err)
		}
	}
	for k := range c.agents {
		if c.agents[k], err = c.startAgent(k); err != nil {
			return err
		}
	}
	c.wg.Go(func() { c.keep(-1, &c.master, c.startMaster) })
	for k := range c.agents {
		c.wg.Go(func() { c.keep(k, &c.agents[k], func() (*process, error) { return c.startAgent(k) }) })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for rank := range ranks {
		s := &seat{rank: rank, rate: c.o.Rate}
		if rank == ranks-1 {
			s.rate /= 10 // whom the others help out by stealing
		}
		c.seats = append(c.seats, s)
	}
	for _, s := range c.seats {
		if err := c.startTrainer(s); err != nil {
			return err
		}
		c.wg.Go(func() { c.keepTrainer(s) })
	}
	return nil
}

// keep starts a master or an agent again.
func (c *crew) keep(agent int, at **process, again func() (*process, error)) {
	for {
		c.mu.Lock()
		p := *at
		c.mu.Unlock()
		select {
		case <-p.done:
		case <-c.quit:
			return
		}
		if status, how := p.status(); status > 0 {
			c.wrongf("%s ended by itself: %s", p.name, how)
		}
		if !c.wait() {
			return
		}
		next, err := again()
		if err != nil {
			c.wrongf("%v", err)
			return
		}
		c.mu.Lock()
		*at = next
		// Until it is back at work; a margin for that.
		c.disturbed = append(c.disturbed, disturbance{from: p.at - int64(time.Second), to: monotonic() + int64(3*time.Second), agent: agent})
		c.mu.Unlock()
	}
}

// wait is the time between an end and the next start: mostly short, sometimes
// longer than a session lives. False: there is no next.
func (c *crew) wait() bool {
	c.mu.Lock()
	d := time.Duration(c.rnd.Int64N(int64(400 * time.Millisecond)))
	if !c.calm && c.rnd.IntN(4) == 0 {
		d = c.o.TTL/2 + time.Duration(c.rnd.Int64N(int64(c.o.TTL)))
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
func (c *crew) keepTrainer(s *seat) {
	for {
		c.mu.Lock()
		p := s.p
		c.mu.Unlock()
		select {
		case <-p.done:
		case <-c.quit:
			return
		}
		status, how := p.status()
		c.mu.Lock()
		s.life.ended, s.life.status = p.at, how
		group := s.group
		s.done = status == 0
		c.mu.Unlock()
		switch status {
		case exitFailed, exitNoDataset, 1, 2:
			c.wrongf("%s failed: %s; see %s.log", s.life, how, p.name)
		case 0:
			if !c.restarted(s, group) {
				return
			}
		}
		if status != 0 && !c.wait() {
			return
		}
		c.mu.Lock()
		if c.o.Model == "replicated" && s.group == c.group && status != 0 {
			c.group++
			for _, other := range c.seats {
				if other != s && !other.p.ended() {
					other.p.signal(syscall.SIGKILL)
				}
			}
		}
		s.group = c.group
		err := c.startTrainer(s)
		c.mu.Unlock()
		if err != nil {
			c.wrongf("%v", err)
			return
		}
	}
}

// restarted waits, for a member that is done, until all are (false) or the group
// begins again.
func (c *crew) restarted(s *seat, group int) bool {
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

// stopAll ends whatever still runs, trainers first, and says who did not listen.
func (c *crew) stopAll() {
	close(c.quit)
	c.wg.Wait()
	for _, s := range c.seats {
		if s.p != nil && !s.p.stop(5*time.Second) {
			c.wrongf("%s did not end after SIGTERM", s.p.name)
		}
		if s.life != nil && s.life.ended == 0 {
			s.life.ended = s.p.at
		}
	}
	for _, p := range append(c.agents, c.master) {
		if p == nil {
			continue
		}
		if !p.stop(8 * time.Second) {
			c.wrongf("%s did not end after SIGTERM", p.name)
		}
	}
}

func (c *crew) readJournals() (lives []*life, err error) {
	for _, s := range c.seats {
		for _, l := range s.lives {
			err = errors.Join(err, l.read(c.journal(l)))
			lives = append(lives, l)
		}
	}
	return lives, err
}

func (c *crew) writeTrainer() error {
	return os.WriteFile(filepath.Join(c.dir, "trainer.py"), trainerSource, 0o600)
}
