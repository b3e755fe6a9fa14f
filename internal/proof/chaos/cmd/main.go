// Command cmd runs the chaos test: see package chaos. The last line is one JSON
// object over all runs; the exit status is 1 if anything was wrong.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headrace/headrace/internal/proof/chaos"
)

// roundKills is small: several short rounds see more kinds of input than one long round.
const roundKills = 40

// inMemory is the word for the models whose checkpoints can lie in memory.
const inMemory = "in-memory"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	c := &chaos.Campaign{}
	o := &c.Options
	model := flag.String("model", "all", "shared, private, replicated, in-memory (replicated and private), or all")
	source := flag.String("source", chaos.Files, "one of "+chaos.Sources()+" (a broker is started for the run and killed too), or all: files and kafka")
	live := flag.Bool("live", false, "with a broker: only topics that are written while they are read; --source all has both kinds")
	draw := flag.String("draw", "", "choices that every round has, whatever its seed says: "+strings.Join(chaos.Choices(), ", "))
	flag.BoolVar(&o.Journal, "journal", false, "trainers that save no checkpoints: their model is their journal")
	flag.StringVar(&o.Group, "group", "", "test a plain consumer group instead of Headrace: the path of its script, for example internal/proof/chaos/group.py")
	flag.IntVar(&o.Prefetch, "prefetch", 0, "with --group: batches that each trainer reads ahead, as data loaders do")
	flag.Uint64Var(&o.Seed, "seed", 0, "seed of the first round; 0: the value of HEADRACE_SEED, or else a random one")
	flag.IntVar(&c.MaxRounds, "rounds", 0, "the most rounds to run; 0: as many as --kills needs")
	flag.IntVar(&c.Total, "kills", 60, "SIGKILLs in all rounds together")
	flag.IntVar(&o.Kills, "round-kills", roundKills, "the most random kills in one round; kills at named points come on top")
	flag.IntVar(&c.Parallel, "parallel", 1, "how many rounds run at the same time")
	flag.DurationVar(&o.Every, "every", 0, fmt.Sprintf("mean time between two troubles (default 500ms, for a consumer group %v)", chaos.GroupEvery))
	flag.DurationVar(&o.TTL, "ttl", 2*time.Second, "the master's --session-ttl")
	flag.Float64Var(&o.Rate, "rate", 2000, "rows per second that a trainer's stream reads")
	flag.IntVar(&o.Records, "records", 0, "records in all inputs together; 0: about as many as are read during the kills")
	flag.DurationVar(&o.Patience, "patience", 2*time.Minute, "how long after the last trouble a round may make no progress")
	flag.BoolVar(&o.Keep, "keep", false, "keep the folder of a good run too")
	flag.BoolVar(&o.Verbose, "verbose", false, "print the events of the rounds too")
	flag.StringVar(&o.Binary, "binary", "build/headrace", "the program under test")
	flag.StringVar(&o.Python, "python", ".venv/bin/python", "a Python that has the headrace package")
	flag.Parse()
	switch {
	case *source == "all" && *live:
		return errors.New("--live needs --source kafka, or another broker; --source all has live topics in some rounds")
	case *source == "all":
		c.Sources, c.Lives = []string{chaos.Files, chaos.Kafka}, []bool{false, true}
	case *source == chaos.Files && *live:
		return errors.New("--live needs a broker: files are there before they are read")
	case *source == chaos.Landing: // pushed records are read while more are pushed
		c.Sources, c.Lives = []string{*source}, []bool{true}
	case *source == chaos.Files || slices.Contains(chaos.Queues(), *source):
		c.Sources, c.Lives = []string{*source}, []bool{*live}
	default:
		return fmt.Errorf("--source %q: use %s or all", *source, chaos.Sources())
	}
	c.Models = chaos.Models
	switch {
	case *model == inMemory: // the models whose checkpoints can be in memory
		c.Models = []string{"replicated", "private"}
	case *model != "all":
		if !slices.Contains(chaos.Models, *model) {
			return fmt.Errorf("--model %q: use one of %s, all", *model, strings.Join(chaos.Models, ", "))
		}
		c.Models = []string{*model}
	}
	for _, one := range strings.FieldsFunc(*draw, func(r rune) bool { return r == ',' }) {
		if !slices.Contains(chaos.Choices(), one) {
			return fmt.Errorf("--draw %q: use some of %s", one, strings.Join(chaos.Choices(), ", "))
		}
		o.Draw = append(o.Draw, one)
	}
	if c.Parallel < 1 || c.Total < 1 || o.Kills < 1 {
		return errors.New("--parallel, --kills and --round-kills are at least 1")
	}
	var err error
	if o.Binary, err = filepath.Abs(o.Binary); err != nil {
		return err
	}
	if o.Python, err = filepath.Abs(o.Python); err != nil {
		return err
	}
	o.Seed = cmp.Or(o.Seed, seedFromEnvironment(), uint64(time.Now().UnixNano())%1_000_000)
	o.Out = os.Stdout
	if o.Group != "" {
		o.Kills = c.Total
		return group(ctx, *o, max(1, c.MaxRounds))
	}
	o.Every = cmp.Or(o.Every, 500*time.Millisecond)
	o.Kills = min(o.Kills, c.Total)
	sum, err := c.Run(ctx)
	if err := errors.Join(err, print(sum)); err != nil {
		return err
	}
	if !sum.Good() {
		for _, line := range sum.Stood { // at the end of the output, where the reader looks first
			fmt.Println(line)
		}
		return fmt.Errorf("something was wrong, see above. These commands repeat the failed rounds:\n%s", strings.Join(sum.Again, "\n"))
	}
	return nil
}

// group runs the same trouble against a plain consumer group. Records that it loses or repeats are
// figures; they do not fail the run.
func group(ctx context.Context, o chaos.Options, rounds int) (err error) {
	if o.Group, err = filepath.Abs(o.Group); err != nil {
		return err
	}
	o.Every = cmp.Or(o.Every, chaos.GroupEvery)
	seed := o.Seed
	sum := chaos.Result{Seed: seed, Model: "consumer-group", Source: chaos.Kafka, Prefetch: o.Prefetch}
	for k := range rounds {
		o.Seed = seed + uint64(k)
		r, err := chaos.RunGroup(ctx, o)
		if err != nil {
			return fmt.Errorf("seed %d: %w", o.Seed, err)
		}
		sum.Add(r)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := print(sum); err != nil {
		return err
	}
	if len(sum.Wrong) > 0 {
		return fmt.Errorf("the run itself went wrong; HEADRACE_SEED=%d runs it again", seed)
	}
	return nil
}

func print(r chaos.Result) error {
	line, err := json.Marshal(r)
	if err == nil {
		_, err = fmt.Println(string(line))
	}
	return err
}

func seedFromEnvironment() uint64 {
	n, _ := strconv.ParseUint(os.Getenv("HEADRACE_SEED"), 10, 64)
	return n
}
