package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/proof/child"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Landing is the source of a run whose records are pushed while they are read. It has no broker.
// Trouble that would kill a broker kills a pusher instead (trainer/pusher.py).
const Landing = "landing"

// pushPoints are points between two calls of a pusher, at which it kills itself.
var pushPoints = []string{"opened", "asked", "half", "pushed", "staged", "told", "committed"}

// The ids of records that must never be seen: one in a transaction that is not committed, and one in
// a second push of a visible transaction. They are larger than any id of an input.
const (
	strayID = 1 << 38
	againID = 1<<38 + 1
)

// landing is the queue of a job with pushed records: the master itself.
type landing struct {
	c *crew

	mu   sync.Mutex // guards the fields below
	all  []*pushing
	away bool // pushers were killed and must not start yet
	died int  // pushers that were killed, by us or by themselves
}

// pushers gives the landing of a run that pushes. Call it after the pushers have ended.
func (c *crew) pushers() (*landing, bool) {
	if c.broker == nil {
		return nil, false
	}
	l, ok := c.broker.queue.(*landing)
	return l, ok
}

func (l *landing) Start(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = false
	return nil
}

// Kill ends all pushers.
func (l *landing) Kill() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = true
	var failed error
	for _, p := range l.all {
		failed = errors.Join(failed, p.kill())
	}
	return failed
}

func (l *landing) Close() error  { return l.Kill() }
func (l *landing) where() string { return "the master" }

func (l *landing) createTopic(context.Context, string, int) error { return nil }

// source asks for chunks so small that a transaction has several. They are deleted as soon as no
// checkpoint needs them.
func (l *landing) source(in *input) string {
	return fmt.Sprintf("landing: {partitions: %d, chunk: 1KiB, retain: 0s}", in.partitions)
}

func (l *landing) sizes() (lease, block string) { return "initial: 80, min: 20", "150" }
func (l *landing) exact() bool                  { return false }

// segment: a chunk is one segment, and its name is unique.
func (l *landing) segment(_ *input, _ *cut.Partition, r audit.Range) string {
	return filepath.Base(r.Name)
}

func (l *landing) told(context.Context, *input) []int64 { return nil }

func (l *landing) writer(in *input) (writer, error) {
	p := &pushing{l: l, in: in, folder: filepath.Join(l.c.dir, "push-"+in.name)}
	if err := os.Mkdir(p.folder, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(p.journal(), nil, 0o600); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, p)
	return p, nil
}

// pushing is the pusher of one input. Its processes follow each other.
type pushing struct {
	l      *landing
	in     *input
	folder string
	n      int // transactions so far
	p      *child.Process
}

func (p *pushing) journal() string { return filepath.Join(p.folder, "journal") }

func (p *pushing) kill() error {
	if p.p == nil {
		return nil
	}
	_, err := p.p.Kill()
	return err
}

// keep starts a process if none runs.
func (p *pushing) keep() (err error) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.l.away || p.p != nil && !p.p.Ended() {
		return nil
	}
	if p.p != nil {
		if code, how := p.p.Status(); code >= 0 {
			return fmt.Errorf("the pusher of %s has ended: %s", p.in.name, how)
		}
		p.l.died++
	}
	p.p, err = p.l.c.start("pusher-"+p.in.name, []string{"HEADRACE_JOB=chaos", "HEADRACE_STATE=" + filepath.Join(p.l.c.dir, "state"),
		"OPENBLAS_NUM_THREADS=1"}, p.l.c.o.Python, "-m", "trainer.pusher", p.folder, p.in.name)
	return err
}

// transaction is a file N.json for trainer/pusher.py.
type transaction struct {
	ID     string   `json:"id"`
	Key    string   `json:"key"`
	Values [][]byte `json:"values"`
	Die    []string `json:"die"`
	Stray  string   `json:"stray"` // a record in a transaction that is never committed
	Again  string   `json:"again"` // a record that is pushed again under the id of this transaction
}

// append pushes values in one transaction, and waits until a pusher says that it is visible.
func (p *pushing) append(ctx context.Context, r *rand.Rand, partition int, _ int64, values [][]byte, put func(int, string, int64)) error {
	t := transaction{ID: fmt.Sprintf("%s-%d", p.in.name, p.n), Key: keyOf(partition, p.in.partitions), Values: values, Die: []string{}}
	for _, point := range pushPoints {
		if r.IntN(20) == 0 {
			t.Die = append(t.Die, point)
		}
	}
	if r.IntN(3) == 0 {
		t.Stray = p.record(r, strayID)
	}
	if r.IntN(3) == 0 {
		t.Again = p.record(r, againID)
	}
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	part := filepath.Join(p.folder, "next")
	if err := errors.Join(os.WriteFile(part, text, 0o600), os.Rename(part, filepath.Join(p.folder, strconv.Itoa(p.n)+".json"))); err != nil {
		return err
	}
	for {
		attempts, done, err := p.told(p.n)
		if err != nil {
			return err
		}
		if done >= 0 {
			p.n++
			return p.place(attempts, done, len(values), put)
		}
		if err := p.keep(); err != nil {
			return err
		}
		if err := until(ctx, time.Now().Add(10*time.Millisecond)); err != nil {
			return err
		}
	}
}

// record makes the bytes of a record with an id.
func (p *pushing) record(r *rand.Rand, id int) string {
	var b bytes.Buffer
	p.in.record(&b, r, id)
	return string(bytes.TrimRight(b.Bytes(), "\r\n"))
}

// keyOf gives a key that hashes to a partition.
func keyOf(partition, partitions int) string {
	for k := 0; ; k++ {
		if key := "k" + strconv.Itoa(k); chunk.PartitionOf([]byte(key), partitions, 0) == partition {
			return key
		}
	}
}

// told reads what the journal says of a transaction: the chunks of each attempt that reached the
// commit, and how many records are visible (-1: none yet).
func (p *pushing) told(n int) (attempts [][]string, done int, err error) {
	text, err := os.ReadFile(p.journal())
	if err != nil {
		return nil, 0, err
	}
	done = -1
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		var l struct {
			N        int
			Locators []string
			Done     *int
			Wrong    string
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, 0, fmt.Errorf("the journal of a pusher: %q: %w", line, err)
		}
		switch {
		case l.Wrong != "":
			return nil, 0, fmt.Errorf("%s, transaction %d: %s", p.in.name, l.N, l.Wrong)
		case l.N != n:
		case l.Done != nil:
			done = *l.Done
		default:
			attempts = append(attempts, l.Locators)
		}
	}
	return attempts, done, nil
}

// place tells where the records are. Each attempt cut them into the same chunks under other names,
// and any one attempt may be the visible one. So place names the places in the chunks of all attempts.
func (p *pushing) place(attempts [][]string, done, records int, put func(int, string, int64)) error {
	if done != records {
		return fmt.Errorf("%s: a transaction was pushed with %d records and is visible with %d", p.in.name, records, done)
	}
	if len(attempts) == 0 {
		return fmt.Errorf("%s: a transaction is visible, and no pusher has tried to commit it", p.in.name)
	}
	var first []string
	for n, locators := range attempts {
		at := 0
		var names []string
		for _, text := range locators {
			l, key, err := chunk.ParseLocator(text)
			if err != nil {
				return err
			}
			if names = append(names, key.Name()); n == 0 {
				for i := range l.Records {
					put(at+i, key.Name(), int64(i))
				}
			}
			at += l.Records
		}
		if at != records || n > 0 && len(names) != len(first) {
			return fmt.Errorf("%s: %d records were staged as %d", p.in.name, records, at)
		}
		if n == 0 {
			first = names
		}
		for i := range names {
			p.in.same(first[i], names[i])
		}
	}
	return nil
}

// same says that the records of one segment may be in another one instead.
func (in *input) same(one, other string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.places[other] = in.places[one]
}

func (p *pushing) close() {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	_ = p.kill() // left.go finds a process that is still there
}
