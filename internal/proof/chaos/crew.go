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

// Exit statuses of trainers: trainer/ending.py.
const (
	exitRefused   = 3
	exitNoAgent   = 4
	exitFailed    = 5
	exitNoDataset = 6
	exitLeft      = 7
	exitAlone     = 8 // another rank, or the server of a shared model, has ended
)

const applyWithin = 10 * time.Second // then apply is tried again

// crew is all processes of a run. One goroutine looks after each, and starts it again some
// time after it ended.
type crew struct {
	o       Options
	choices        // what this run tests
	dir     string // the working folder of its processes
	data    string // the folder of the input
	sockets string
	run     string // the value of mark
	address string
	books   *books
	broker  *broker // nil: files are read
	inputs  []*input

	mu        sync.Mutex
	rnd       *rand.Rand // decides what happens to processes, guarded by mu
	calm      bool       // no long waits before a start any more
	master    *child.Process
	agents    []*child.Process
	seats     []*seat
	disturbed []disturbance
	standing  int                   // processes that are frozen now
	absent    map[int]time.Duration // by agent: how long it stays away when it ends next
	born      int64                 // when the trainers were first started
	wrong     []string
	group     int             // replicated: number of the group's start
	port      int             // where the ranks of this group, or trainers and the shared model's server, meet
	commits   int             // how many offsets of the broker were compared with checkpoints
	damaged   map[cut.ID]bool // guarded by collects
	collects  sync.Mutex
	server    *child.Process // of a shared model; it listens on port
	lifeOf    int            // how often the server was started
	unapplied bool           // the master lost its state and has not been told the datasets again
	looked    time.Time      // when tellEnough last read the journals
	wg        sync.WaitGroup
	producing atomic.Int32  // inputs whose records are still being written
	quit      chan struct{} // closed: no process is started again
	released  sync.Once     // closes quit once
	stuck     bool          // the end did not come
	lost      int           // how many processes the master has given up
	nodes     nodes         // only with checkpoints in memory
}

// seat is a rank. Its processes follow each other.
type seat struct {
	rank  int
	p     *child.Process
	life  *life
	lives []*life
	rate  float64
	done  bool           // its last process saw the end of data
	told  *child.Process // the process that was told to end because all records are in
	group int
}

func (c *crew) wrongf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// bad reports whether something is wrong already. More trouble would only hide it.
func (c *crew) bad() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.wrong) > 0
}

func (c *crew) socket(k int) string { return filepath.Join(c.sockets, fmt.Sprintf("a%d.sock", k)) }

// mark is in the environment of every process of a run. left.go finds our processes by it.
const mark = "CHAOS_RUN="

// start starts a process of this run. A line in its log marks the beginning of each life.
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

// lostAfter is how many TTLs an agent may be silent before it is lost. A killed process is started
// again, and a frozen one goes on, before that.
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

// roundWaits are the values of max_wait that streams of rounds have, in seconds.
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
			if in.strict { // only one trainer at a time reads it, and that may be the slow one
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
				break // two streams of a trainer would have two orders; in rounds all ranks need the same streams
			}
		}
	}
	if c.pause && s.rank == 0 { // then rank 0 has no other batch in hand while it saves
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

// startAll starts all processes. They are looked after until quit is closed.
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
		if rank == ranks-1 && (c.o.Journal || c.o.Model != "replicated") { // in a replicated group all would wait for the slow one
			s.rate /= 10 // the other ranks steal from it
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

// apply tells the master the datasets. On a busy machine, a broker that was just started may need
// longer to answer than the master waits. So apply asks again until o.Patience is over.
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

// writeTrainer writes the trainers' Python package into the folder where they run.
func (c *crew) writeTrainer() error { return os.CopyFS(c.dir, trainerSource) }
