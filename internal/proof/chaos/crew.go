package chaos

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/proof/child"
	"github.com/headrace/headrace/shardsvc/cut"
)

//go:embed trainer/*.py
var trainerSource embed.FS

// Exit statuses of trainers: ending.py.
const (
	exitRefused   = 3
	exitNoAgent   = 4
	exitFailed    = 5
	exitNoDataset = 6
	exitLeft      = 7
	exitAlone     = 8 // another rank, or the server of a shared model, has ended
)

const applyWithin = 10 * time.Second // before it is tried again

// crew is who there is. Each seat is looked after by one goroutine, which starts
// its process again whenever it ends, after a while.
type crew struct {
	o       Options
	choices        // what this run is about
	dir     string // where its processes run
	data    string // where the input is
	sockets string
	run     string // of mark
	address string
	books   *books
	broker  *broker // nil: files are read
	inputs  []*input

	mu        sync.Mutex
	rnd       *rand.Rand // of what happens in seats: guarded by mu
	calm      bool       // no more waiting before a start
	master    *child.Process
	agents    []*child.Process
	seats     []*seat
	disturbed []disturbance
	standing  int                   // processes that are stopped now
	absent    map[int]time.Duration // how long an agent stays away when it ends next
	born      int64                 // when all were started first
	wrong     []string
	group     int             // start of the group, for `replicated`
	port      int             // where this group's ranks meet
	commits   int             // offsets of the broker that were compared with checkpoints
	damaged   map[cut.ID]bool // guarded by collects
	collects  sync.Mutex
	server    *child.Process // of a shared model; its port is port
	lifeOf    int            // of the server: how often it was started
	unapplied bool           // the master has lost its state and was told no datasets yet
	looked    time.Time      // when tellEnough has last read the journals
	wg        sync.WaitGroup
	producing atomic.Int32  // inputs whose records are still being written
	quit      chan struct{} // closed: nobody is started again
	released  sync.Once     // it is
	stuck     bool          // the end did not come
	lost      int           // processes that the master has given up
	nodes     nodes         // with checkpoints in memory
}

// seat is a rank: its processes follow each other.
type seat struct {
	rank  int
	p     *child.Process
	life  *life
	lives []*life
	rate  float64
	done  bool           // its last process saw the end of data
	told  *child.Process // to end, since all is done
	group int
}

func (c *crew) wrongf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// bad: something is wrong already; more trouble only hides it.
func (c *crew) bad() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.wrong) > 0
}

func (c *crew) socket(k int) string { return filepath.Join(c.sockets, fmt.Sprintf("a%d.sock", k)) }

// mark in the environment of every process of a run tells left.go what is ours.
const mark = "CHAOS_RUN="

// start starts a process of this run, in whose output every life begins with a line.
func (c *crew) start(name string, env []string, argv ...string) (*child.Process, error) {
	out, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(out, "--- %d\n", child.Monotonic()/1e6)
	if err = errors.Join(err, out.Close()); err != nil {
		return nil, err
	}
	return child.Start(c.dir, name, append(env, mark+c.run), argv...)
}

// lostAfter is how many TTLs an agent may be silent: whoever is started again is back
// before it, and whoever is stopped goes on.
const lostAfter = 5

func (c *crew) excuses() excuses { return excuses{c.disturbed, lostAfter * c.o.TTL} }

func (c *crew) startMaster() (*child.Process, error) {
	return c.known(c.start("master", nil, c.o.Binary, "master", "--job", "chaos", "--model", c.o.Model,
		"--state", filepath.Join(c.dir, "state"), "--listen", c.address, "--http", "127.0.0.1:0",
		"--session-ttl", c.o.TTL.String(), "--lost-after", (lostAfter * c.o.TTL).String(), "--allow-root", c.data, "--log-level", "debug"))
}

func (c *crew) startAgent(k int) (*child.Process, error) {
	name := fmt.Sprintf("agent-%d", k)
	args := []string{c.o.Binary, "agent", "--job", "chaos", "--name", name, "--master", c.address, "--socket", c.socket(k),
		"--allow-root", c.data, "--state", filepath.Join(c.dir, "state"), "--log-level", "debug"}
	if c.copies {
		args = append(args, "--replicas", "1")
	}
	return c.known(c.start(name, c.memoryOf(k), args...))
}

// roundWaits are what max_wait of rounds is, in seconds.
var roundWaits = []float64{0.05, 0.1, 0.3}

type slot struct {
	Dataset string  `json:"dataset"`
	Number  int     `json:"number"`
	Lines   bool    `json:"lines"`
	Rows    int     `json:"rows"`
	Rate    float64 `json:"rate"`
	Ack     string  `json:"ack"`
	MaxWait float64 `json:"max_wait"`
	Closes  bool    `json:"closes"`
	Tail    string  `json:"tail"`
}

// startTrainer starts the next process of a rank on any agent. c.mu is held.
func (c *crew) startTrainer(s *seat) (err error) {
	r := c.rnd
	s.life = &life{rank: s.rank, no: len(s.lives) + 1, agent: c.agentOf(s), status: "running", group: c.group}
	s.life.started = child.Monotonic()
	s.lives = append(s.lives, s.life)
	s.done = false
	var slots []slot
	for d, in := range c.inputs {
		for range 1 + r.IntN(3)/2 {
			ack := "step"
			if c.o.Journal && c.o.Model == "shared" && r.IntN(5) == 0 {
				ack = "auto"
			}
			rate := s.rate
			if in.strict { // it has one holder at a time, and that may be the slow one
				rate = c.o.Rate
			}
			slots = append(slots, slot{
				Dataset: in.name, Number: d, Lines: in.format == "lines", Rows: 16 + r.IntN(48), Rate: rate, Ack: ack,
				MaxWait: max(float64(r.IntN(2))*0.05, in.leastWait()), Closes: ack == "step" && r.IntN(3) == 0, Tail: "short",
			})
			if c.rounds {
				slots[len(slots)-1].MaxWait = roundWaits[r.IntN(len(roundWaits))]
			}
			if c.drops {
				slots[len(slots)-1].Tail = "drop"
			}
			if in.strict || c.exact || c.rounds {
				break // two streams of a trainer would be two orders; in rounds all ranks have the same ones
			}
		}
	}
	if c.pause && s.rank == 0 { // while it saves it has no other batch in hand
		slots = slots[r.IntN(len(slots)):][:1]
	}
	for _, one := range slots {
		s.life.rows = append(s.life.rows, one.Rows)
	}
	settings := map[string]any{
		"role": c.o.Model, "rank": s.rank, "seed": r.Uint32(), "journal": c.journal(s.life), "model": c.o.Model, "sizes": c.sizes(),
		"slots": slots, "leaves": c.o.Model != "replicated" && !c.calm, "trap": nil, "lull": c.lullFile(s.rank),
	}
	if c.o.Journal {
		settings["role"] = "plain"
	} else {
		c.savesToo(s, settings)
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	s.p, err = c.start(fmt.Sprintf("trainer-%d", s.rank), append(c.memoryOf(s.life.agent),
		"CHAOS_TRAINER="+string(text), "HEADRACE_JOB=chaos", "HEADRACE_AGENT="+c.socket(s.life.agent),
		"HEADRACE_RANK="+strconv.Itoa(s.rank), "HEADRACE_WORLD_SIZE="+strconv.Itoa(len(c.seats)),
		"HEADRACE_ATTEMPT="+strconv.Itoa(s.life.no-1),
		"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "PYTHONUNBUFFERED=1",
	), c.o.Python, "-m", "trainer")
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
	if err := c.apply(ctx); err != nil {
		return err
	}
	for k := range c.agents {
		if c.agents[k], err = c.startAgent(k); err != nil {
			return err
		}
	}
	c.wg.Go(func() { c.keep(ctx, -1, &c.master, c.startMaster) })
	for k := range c.agents {
		c.wg.Go(func() { c.keep(ctx, k, &c.agents[k], func() (*child.Process, error) { return c.startAgent(k) }) })
	}
	if !c.o.Journal {
		if err := c.startSaving(ctx); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.born = child.Monotonic()
	for rank := range ranks {
		s := &seat{rank: rank, rate: c.o.Rate}
		if rank == ranks-1 && (c.o.Journal || c.o.Model != "replicated") { // where all wait for the slowest
			s.rate /= 10 // whom the others help out by stealing
		}
		c.seats = append(c.seats, s)
	}
	for _, s := range c.seats {
		if err := c.startTrainer(s); err != nil {
			return err
		}
		c.wg.Go(func() { c.keepTrainer(ctx, s) })
	}
	return nil
}

// apply tells the master the datasets. A broker that was just started on a busy machine may
// need longer than the master waits for it: that is asked again for as long as there is
// patience.
func (c *crew) apply(ctx context.Context) error {
	for _, in := range c.inputs {
		for began := time.Now(); ; {
			_, err := asked(ctx, c.books.api.Apply, &headracev1.ApplyRequest{Yaml: in.yaml()})
			if err == nil {
				break
			}
			if status.Code(err) != codes.FailedPrecondition || time.Since(began) > c.o.Patience || ctx.Err() != nil {
				return fmt.Errorf("applying %s: %w", in.name, err)
			}
			time.Sleep(collectEvery)
		}
	}
	return nil
}

func (c *crew) readJournals() (lives []*life, err error) {
	for _, s := range c.seats {
		for _, l := range s.lives {
			err = errors.Join(err, l.read(c.journal(l)))
			lives = append(lives, l)
		}
	}
	return lives, errors.Join(err, c.readGivenUp(lives))
}

// writeTrainer puts the trainers' package where they are started.
func (c *crew) writeTrainer() error { return os.CopyFS(c.dir, trainerSource) }
