package chaos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/proof/child"
)

// A run that hangs is examined before it is ended: what the master says of the job, its leases and its
// goroutines, the goroutines of the agents, the stacks of the trainers. All of it is kept in the
// folder. A short form is printed, because the folder may be on a machine that nobody can reach later.

const (
	mostTold    = 40               // lines of each kind that are printed
	dumpsWithin = 10 * time.Second // time for the answers to SIGQUIT and SIGUSR2
)

// postMortem is called when no process is started again: the master and the agents do not survive it. It
// returns the lines that matter most, to be printed last: of a run on another machine the reader often
// sees only the end of the output.
func (c *crew) postMortem(tell func(string, ...any)) (short []string) {
	ctx, cancel := context.WithTimeout(context.Background(), dumpsWithin)
	defer cancel()
	both := func(format string, args ...any) {
		tell(format, args...)
		short = append(short, clipped(fmt.Sprintf(format, args...)))
	}
	c.tellBooks(ctx, both)
	c.tellMissing(tell)
	for _, s := range c.seats {
		if s.p != nil {
			both("  %s last wrote: %s", s.p.Name, lastLine(s.p.Log))
		}
		for _, line := range c.stacks(s.p, syscall.SIGUSR2, pythonPlaces) {
			both("  %s: %s", s.p.Name, line)
		}
	}
	for _, p := range append(slices.Clone(c.agents), c.master) {
		if p != nil {
			both("  %s last wrote: %s", p.Name, lastLine(p.Log))
		}
	}
	for _, p := range append(slices.Clone(c.agents), c.master) {
		for _, line := range c.stacks(p, syscall.SIGQUIT, goPlaces) {
			tell("  %s: %s", p.Name, line)
		}
	}
	return short
}

// mostShort is the greatest length of such a line, in bytes.
const mostShort = 260

func clipped(line string) string {
	if len(line) > mostShort {
		return line[:mostShort] + " ..."
	}
	return line
}

// lastLine gives the last line of a log. It is "" if there is none.
func lastLine(name string) string {
	text, _ := os.ReadFile(name)
	text = bytes.TrimSpace(text)
	return clipped(string(text[bytes.LastIndexByte(text, '\n')+1:]))
}

// tellBooks prints who holds which leases, as the master says.
func (c *crew) tellBooks(ctx context.Context, tell func(string, ...any)) {
	job, err := c.books.api.Job(ctx, &headracev1.JobRequest{}, ready)
	if err != nil {
		tell("  the master does not answer: %v", err)
		return
	}
	c.keepText("job.json", protojson.Format(job))
	for _, w := range job.Workers {
		tell("  rank %d on %s is %s: %d leases, step %d, %d rows yielded, %.1f s waited", w.Rank, w.Agent, w.State, w.Leases, w.Step, w.RowsYielded, w.WaitSeconds)
	}
	for _, in := range c.inputs {
		state, err := c.books.api.State(ctx, &headracev1.StateRequest{Name: in.name, PageSize: 1000}, ready)
		if err != nil {
			tell("  %s: %v", in.name, err)
			continue
		}
		c.keepText(in.name+".json", protojson.Format(state))
		for _, d := range job.Datasets {
			if d.Name == in.name {
				tell("  %s is %s (%s): %v", in.name, d.State, d.Reason, d.Counts)
			}
		}
		for _, p := range state.Partitions {
			for _, l := range p.Lease {
				tell("    partition %d pass %d: rank %d on %s holds [%d, %d), settled up to %d, for %.1f s; the head is %d", p.Number, p.Pass, l.Rank, l.Agent,
					l.Start, l.End, l.Prefix, l.AgeSeconds, p.Counts.GetListed())
			}
		}
	}
}

// tellMissing prints which records are in no model, and which process got each last.
func (c *crew) tellMissing(tell func(string, ...any)) {
	if !c.o.Journal {
		return
	}
	in, last := map[key]bool{}, map[key]string{}
	for _, s := range c.seats {
		for _, one := range s.lives {
			l := life{rank: one.rank, no: one.no, status: one.status}
			if err := l.read(c.journal(one)); err != nil {
				tell("  %v", err)
			}
			for _, b := range l.batches {
				for _, k := range b.keys {
					last[k] = fmt.Sprintf(", last given to %v as batch %d of stream %d", &l, b.number, b.stream)
					in[k] = in[k] || b.applied != 0 && (c.o.Model == "shared" || one == s.life)
				}
			}
		}
	}
	var all []missing
	each(c.inputs, func(k key) {
		if in[k] {
			return
		}
		if n := len(all); n > 0 && all[n-1].to+1 == k && all[n-1].last == last[k] {
			all[n-1].to = k
			return
		}
		all = append(all, missing{k, k, last[k]})
	})
	for _, m := range all[:min(len(all), mostTold)] {
		tell("  %v to %d is in no model%s", m.from, m.to.id(), m.last)
	}
}

// missing is a run of records with the same history.
type missing struct {
	from, to key
	last     string
}

// stacks makes a process write its stacks to its log, and gives the places of its threads.
func (c *crew) stacks(p *child.Process, signal syscall.Signal, places func(string) []string) []string {
	if p == nil || p.Ended() {
		return nil
	}
	before, _ := os.ReadFile(p.Log)
	p.Signal(syscall.SIGCONT)
	p.Signal(signal)
	var text []byte
	for deadline := time.Now().Add(dumpsWithin); time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
		more, _ := os.ReadFile(p.Log)
		more = bytes.TrimPrefix(more, before)
		if len(more) > 0 && len(more) == len(text) {
			break
		}
		text = more
	}
	all := places(string(text))
	return all[:min(len(all), mostTold)]
}

// goPlaces lists where in our code the goroutines of a dump are, and how many are at each place.
func goPlaces(dump string) (all []string) {
	const ours = "github.com/headrace/headrace/"
	count := map[string]int{}
	for _, g := range strings.Split(dump, "\n\n") {
		head, rest, ok := strings.Cut(strings.TrimLeft(g, "\n"), "\n")
		if i := strings.LastIndex(head, "goroutine "); !ok || i < 0 {
			continue
		}
		var chain []string
		for line := range strings.Lines(rest) {
			if name, ok := strings.CutPrefix(line, ours); ok && len(chain) < 3 {
				chain = append(chain, name[:strings.LastIndex(name, "(")])
			}
		}
		if _, why, ok := strings.Cut(head, "["); ok && len(chain) > 0 {
			what, _, _ := strings.Cut(strings.TrimSuffix(why, "]:"), ",")
			count[strings.Join(chain, " < ")+" ["+what+"]"]++
		}
	}
	for place, n := range count {
		all = append(all, fmt.Sprintf("%d at %s", n, place))
	}
	slices.Sort(all)
	return all
}

// pythonPlaces lists where the threads in a dump of faulthandler are.
func pythonPlaces(dump string) (all []string) {
	for _, thread := range strings.Split(dump, "\n\n") {
		var chain []string
		for line := range strings.Lines(thread) {
			if place, ok := strings.CutPrefix(line, "  File "); ok && len(chain) < 3 {
				file, where, _ := strings.Cut(strings.TrimSpace(place), ", ")
				chain = append(chain, filepath.Base(strings.Trim(file, `"`))+" "+where)
			}
		}
		if len(chain) > 0 {
			all = append(all, strings.Join(chain, " < "))
		}
	}
	return all
}

func (c *crew) keepText(name, text string) {
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
		c.wrongf("%v", err)
	}
}
