// Command sim plays seeds of the simulation: `make sim`.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/proof/sim"
)

type summary struct {
	Seeds   int     `json:"seeds"`
	Failed  int     `json:"failed"`
	Events  int     `json:"events"`
	Fewest  int     `json:"fewest_events"` // in one seed
	Crashes int     `json:"crashes"`
	Seconds float64 `json:"seconds"`
}

func main() {
	seeds := flag.Int("seeds", 1000, "how many seeds")
	first := flag.Uint64("first", 1, "the first seed; 0: a random one, which is printed")
	one := flag.Uint64("seed", 0, "replay this seed with a trace")
	shrink := flag.Bool("shrink", false, "with -seed: if it fails, leave out troubles while it still fails, and print the shortest failing story")
	without := flag.String("without", "", "with -seed: numbers of troubles to leave out, as in 3,7")
	jobs := flag.Int("jobs", runtime.GOMAXPROCS(0), "how many seeds run at the same time")
	flag.Parse()
	debug.SetGCPercent(400) // the heap of a seed is small: a third of the time went into collecting it
	if *one != 0 {
		replay(story(*one, *without), *shrink)
		return
	}
	if *first == 0 {
		*first = rand.Uint64N(1 << 40)
		fmt.Printf("seeds %d to %d; again with -first %d\n", *first, *first+uint64(*seeds)-1, *first)
	}
	began := time.Now()
	var (
		mu  sync.Mutex
		sum = summary{Seeds: *seeds, Fewest: math.MaxInt}
		wg  sync.WaitGroup
	)
	next := make(chan uint64)
	for range *jobs {
		wg.Go(func() {
			for seed := range next {
				r := sim.Run(seed, nil)
				mu.Lock()
				sum.Events += r.Events
				sum.Crashes += r.Crashes
				if r.Failed == "" {
					sum.Fewest = min(sum.Fewest, r.Events)
				} else {
					if sum.Failed++; sum.Failed <= 20 {
						fmt.Printf("seed %d: %.1500s\n  replay: make sim SEED=%d\n", seed, r.Failed, seed)
					}
				}
				mu.Unlock()
			}
		})
	}
	for i := range *seeds {
		next <- *first + uint64(i)
	}
	close(next)
	wg.Wait()
	sum.Seconds = time.Since(began).Seconds()
	line, err := json.Marshal(sum)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
	if sum.Failed > 0 {
		os.Exit(1)
	}
}

// story is a seed without some of its troubles.
func story(seed uint64, without string) sim.Story {
	s := sim.Story{Seed: seed}
	for _, n := range strings.FieldsFunc(without, func(r rune) bool { return r == ',' }) {
		i, err := strconv.Atoi(n)
		if err != nil {
			fmt.Fprintf(os.Stderr, "-without %s: %q is not the number of a trouble\n", without, n)
			os.Exit(2)
		}
		s.Without = append(s.Without, i)
	}
	return s
}

func replay(s sim.Story, shrink bool) {
	all := len(sim.Troubles(s.Seed))
	if shrink {
		s, _ = sim.Shrink(s)
	}
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	r := s.Run(out)
	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if r.Failed != "" && shrink {
		fmt.Printf("\nit fails with %d of its %d troubles:\n%v", all-len(s.Without), all, s)
	}
	fmt.Printf("%+v\n", r)
	if r.Failed != "" {
		os.Exit(1)
	}
}
