// Command cmd runs the chaos test: see package chaos. The last line is one JSON
// object over all runs; the exit status is 1 if anything was wrong.
package main

import (
	"context"
	"encoding/json"
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

	"github.com/headrace/headrace/internal/chaos"
)

var models = []string{"shared", "private", "replicated"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o chaos.Options
	model := flag.String("model", "all", "shared, private, replicated, or all, one after the other")
	seed := flag.Uint64("seed", 0, "of the first run; 0: HEADRACE_SEED, else any")
	runs := flag.Int("runs", 1, "runs of each model, with seeds that follow")
	flag.IntVar(&o.Kills, "kills", 20, "SIGKILLs in a run")
	flag.DurationVar(&o.Every, "every", 500*time.Millisecond, "mean time between two troubles")
	flag.DurationVar(&o.TTL, "ttl", 2*time.Second, "of sessions")
	flag.Float64Var(&o.Rate, "rate", 2000, "rows/s of a trainer's stream")
	flag.IntVar(&o.Records, "records", 0, "in all inputs; 0: as many as the kills take")
	flag.DurationVar(&o.Patience, "patience", 90*time.Second, "for the end of data after the last trouble")
	flag.BoolVar(&o.Keep, "keep", false, "keep the folder of a good run too")
	flag.StringVar(&o.Binary, "binary", "build/headrace", "the program under test")
	flag.StringVar(&o.Python, "python", ".venv/bin/python", "with the headrace package")
	flag.Parse()
	if *seed == 0 {
		*seed = seedFromEnvironment()
	}
	var err error
	if o.Binary, err = filepath.Abs(o.Binary); err != nil {
		return err
	}
	if o.Python, err = filepath.Abs(o.Python); err != nil {
		return err
	}
	if *model != "all" {
		if !slices.Contains(models, *model) {
			return fmt.Errorf("--model %q: use one of %s, all", *model, strings.Join(models, ", "))
		}
		models = []string{*model}
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	o.Out = os.Stdout
	return all(ctx, o, *seed, *runs)
}

func all(ctx context.Context, o chaos.Options, seed uint64, runs int) error {
	sum := chaos.Result{Seed: seed, Model: strings.Join(models, "+")}
	good := true
	for k := range runs {
		for _, o.Model = range models {
			o.Seed = seed + uint64(k)
			r, err := chaos.Run(ctx, o)
			if err != nil {
				return fmt.Errorf("model %s, seed %d: %w", o.Model, o.Seed, err)
			}
			if err := print(r); err != nil {
				return err
			}
			good = good && r.Good()
			sum.Add(r)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	if err := print(sum); err != nil {
		return err
	}
	if !good {
		return fmt.Errorf("something was wrong; HEADRACE_SEED=%d runs it again", seed)
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
