package chaos

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Models lists the model kinds that a campaign may have.
var Models = []string{"shared", "private", "replicated"}

// Campaign is many rounds. It goes through all sources and models, and through topics that are
// complete or still being written, until Total processes are killed.
type Campaign struct {
	Options            // of each round; Kills is the most random kills in a round, kills at named points come on top
	Sources   []string // Files, kinds of queues
	Lives     []bool   // for topics: true means that they are written while they are read
	Models    []string
	Total     int // kills in all rounds together
	MaxRounds int // 0: as many as needed for Total
	Parallel  int // rounds at once
}

const (
	perKill     = 1150 * time.Millisecond // time of a round per kill, on two idle cores
	perRound    = 14 * time.Second        // time of a round to start, to reach the end of data and to be judged
	maxFailures = 4                       // after so many failed rounds the campaign stops
)

// kinds lists the kinds of rounds, ordered so that any few in a row differ in source and model.
func (c *Campaign) kinds() (all []Options) {
	var inputs []Options
	for _, source := range c.Sources {
		if source == Files {
			inputs = append(inputs, Options{Source: source})
			continue
		}
		for _, live := range c.Lives {
			inputs = append(inputs, Options{Source: source, Live: live})
		}
	}
	for k := range len(inputs) * len(c.Models) {
		o := c.Options
		in := inputs[k%len(inputs)]
		o.Source, o.Live = in.Source, in.Live
		o.Model = c.Models[(k+k/len(inputs))%len(c.Models)]
		all = append(all, o)
	}
	if len(inputs)%len(c.Models) != 0 { // the loop above would repeat some pairs
		all = all[:0]
		for _, model := range c.Models {
			for _, in := range inputs {
				o := c.Options
				o.Source, o.Live, o.Model = in.Source, in.Live, model
				all = append(all, o)
			}
		}
	}
	return all
}

// Again is the command that runs one round again, alone.
func (o Options) Again() string {
	s := fmt.Sprintf("go run ./internal/proof/chaos/cmd --source %s --model %s --seed %d --kills %d --rounds 1", o.Source, o.Model, o.Seed, o.Kills)
	if o.Live {
		s += " --live"
	}
	if o.Journal {
		s += " --journal"
	}
	if len(o.Draw) > 0 {
		s += " --draw " + strings.Join(o.Draw, ",")
	}
	return s + fmt.Sprintf(" --every %v --ttl %v --rate %v --records %d --patience %v", o.Every, o.TTL, o.Rate, o.Records, o.Patience)
}

// Name is the kind of a round, for example "kafka live private".
func (o Options) Name() string {
	name := o.Source + " " + o.Model
	if o.Live {
		name = o.Source + " live " + o.Model
	}
	if o.Journal {
		name += " journal"
	}
	return name
}

// bound is the longest that a round may take.
func (o Options) bound() time.Duration {
	return patiences * (4*troubleWithin(o) + o.Patience) // see crew.enough and crew.patience
}

// Run runs rounds until c.Total processes are killed. Failures of rounds are in sum. The error says
// only why the campaign itself could not go on.
func (c *Campaign) Run(ctx context.Context) (sum Result, err error) {
	began := time.Now()
	kinds := c.kinds()
	if len(kinds) == 0 {
		return sum, fmt.Errorf("no kind of round: sources %v, models %v", c.Sources, c.Models)
	}
	sum.Model, sum.Source, sum.Seed = strings.Join(c.Models, "+"), strings.Join(c.Sources, "+"), c.Seed
	rounds := max(1, (c.Total+3*c.Kills/2-1)/(3*c.Kills/2)) // traps at named points add half as many kills
	if c.MaxRounds > 0 {
		rounds = min(rounds, c.MaxRounds)
	}
	waves := (rounds + c.Parallel - 1) / c.Parallel
	c.print("%d kills, about %d rounds of %d kinds, %d at once, seeds from %d: about %v on a quiet machine, %v at most",
		c.Total, rounds, len(kinds), c.Parallel, c.Seed,
		(time.Duration(waves) * (perRound + time.Duration(c.Kills)*perKill)).Round(time.Second),
		(time.Duration(2*waves) * c.bound()).Round(time.Minute))
	ctx, cancel := context.WithTimeout(ctx, time.Duration(2*waves)*c.bound())
	defer cancel()

	var mu sync.Mutex
	next, failures := 0, 0
	take := func() (o Options, number int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil || sum.Kills >= c.Total || failures >= maxFailures || c.MaxRounds > 0 && next >= c.MaxRounds {
			return o, 0, false
		}
		o, number = kinds[next%len(kinds)], next+1
		o.Seed = c.Seed + uint64(next)
		next++
		return o, number, true
	}
	alone := c.Parallel == 1 && (c.MaxRounds == 1 || rounds == 1)
	var wg sync.WaitGroup
	for range c.Parallel { // each ends with the rounds, or with ctx
		wg.Go(func() {
			for o, number, ok := take(); ok; o, number, ok = take() {
				o.Out = io.Discard // its events are in its folder
				if alone || c.Verbose {
					o.Out = c.Out
				}
				r, err := Run(ctx, o)
				if err != nil {
					r.Wrong = append(r.Wrong, fmt.Sprintf("the run itself: %v", err))
				}
				mu.Lock()
				sum.Add(r)
				sum.Rounds++
				if !r.Good() {
					failures++
					sum.Again = append(sum.Again, o.Again())
				}
				c.tell(number, o, r, &sum, time.Since(began))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	sum.Seconds = float64(time.Since(began).Milliseconds()) / 1e3
	if failures >= maxFailures {
		sum.Wrong = append(sum.Wrong, fmt.Sprintf("%d rounds failed; no more were begun", failures))
	} else if sum.Kills < c.Total && c.MaxRounds == 0 && ctx.Err() == nil {
		sum.Wrong = append(sum.Wrong, fmt.Sprintf("%d kills of %d", sum.Kills, c.Total))
	}
	return sum, context.Cause(ctx)
}

func (c *Campaign) print(format string, args ...any) {
	_, _ = fmt.Fprintf(c.Out, format+"\n", args...)
}

// lastEvents is how many events are printed of a failed round: enough for the report of a round that hangs.
const lastEvents = 250

// tell prints a round that is over, and for a failed round its last events.
func (c *Campaign) tell(number int, o Options, r Result, sum *Result, since time.Duration) {
	word := "good"
	if !r.Good() {
		word = "WRONG"
	}
	c.print("%6.0f s  round %d %s: %s, seed %d, %s: %d kills (%d of %d), %d checkpoints, %d restores, lost %d, twice %d, %.0f s",
		since.Seconds(), number, word, o.Name(), o.Seed, strings.Join(r.Drawn, " "), r.Kills, sum.Kills, c.Total, r.CheckpointsChecked, r.Restores, r.Lost, r.Twice, r.Seconds)
	if r.Good() {
		return
	}
	for _, w := range r.Wrong {
		c.print("    %s", w)
	}
	if text, err := os.ReadFile(filepath.Join(r.Folder, "events.log")); err == nil {
		lines := slices.Collect(strings.Lines(string(text)))
		c.print("  its last events:")
		for _, line := range lines[max(0, len(lines)-lastEvents):] {
			c.print("    %s", strings.TrimRight(line, "\n"))
		}
	}
	c.print("  everything is kept in %s; to run it again alone:\n    %s", r.Folder, o.Again())
}

// Add adds the figures of o to r.
func (r *Result) Add(o Result) {
	r.Kills += o.Kills
	r.KillsOnLeasedWork += o.KillsOnLeasedWork
	r.Freezes += o.Freezes
	r.Lives += o.Lives
	r.Records += o.Records
	r.MasterMiB = max(r.MasterMiB, o.MasterMiB)
	r.AgentMiB = max(r.AgentMiB, o.AgentMiB)
	r.KillsAtPoints += o.KillsAtPoints
	r.PushersKilled += o.PushersKilled
	r.Saves.add(o.Saves)
	r.InMemory.add(o.InMemory)
	for what, n := range o.Points {
		if r.Points == nil {
			r.Points = map[string]int{}
		}
		r.Points[what] += n
	}
	for _, what := range o.Drawn {
		if r.DrawnIn == nil {
			r.DrawnIn = map[string]int{}
		}
		r.DrawnIn[what]++
	}
	r.Seconds += o.Seconds
	r.Lost += o.Lost
	r.Twice += o.Twice
	r.Repeats += o.Repeats
	r.SharedRepeats += o.SharedRepeats
	r.GivenUp += o.GivenUp
	r.OfThemStepped += o.OfThemStepped
	r.Dropped += o.Dropped
	r.Wrong = append(r.Wrong, o.Wrong...)
	r.Stood = append(r.Stood, o.Stood...)
}
