// Makespan measures how close a job of unequal workers comes to the ideal. It runs the real cores of master
// (shardsvc) and agents (agent/hold) on a virtual clock. The alternative, fixed-size shards pulled from
// one queue, plays the same scenarios in the same run.
//
// These are simulated: the trainers (a batch takes rows/rate, plus or minus 10 %), the wire (0.2 ms) and the
// store (2 ms for a commit). In every scenario a random worker is killed somewhere in the middle and comes
// back seconds later. In the ideal, the living workers always work at their rates and never wait.
//
// It also measures memory (a process that plays 10^9 records against one that
// plays 10^7) and the planner's cost at 10,000 partitions. Progress goes to
// stderr; the last line of stdout is one JSON object.
//
//	clock.go     virtual time
//	scenario.go  input, workers, death, ideal
//	ours.go      a scenario with the real cores: master.go and agent.go around them
//	fixed.go     a scenario with the alternative
//	memory.go    resident memory
//	planner.go   cost of a grant
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
)

const (
	records = 2_000_000 // 43 s at 46,500/s: the quick start's job
	rows    = 512
	seeds   = 20
)

var (
	four = []float64{15_000, 15_000, 15_000, 1_500}
	two  = []float64{15_000, 1_500}
)

// spread is a figure over the seeds.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// side is one way to hand out the input.
type side struct {
	Ratio    spread  `json:"ratio"`
	Grants   float64 `json:"grants"`   // median: shards handed out
	Repeated float64 `json:"repeated"` // median: records processed again after the death
}

type figures struct {
	Ratio        float64         `json:"ratio"`     // median at 10:10:10:1
	RatioMax     float64         `json:"ratio_max"` // worst seed
	Ratio2       float64         `json:"ratio_10_1"`
	Ratio2Max    float64         `json:"ratio_10_1_max"`
	RSSGrowth    float64         `json:"rss_growth"` // with leases of one batch
	RSS          map[string]int  `json:"rss_kib"`
	RSSGrowth2   float64         `json:"rss_growth_default"` // with leases of two seconds
	RSS2         map[string]int  `json:"rss_kib_default"`
	PlannerNS    float64         `json:"planner_ns"`
	Four         map[string]side `json:"workers_10_10_10_1"`
	Two          map[string]side `json:"workers_10_1"`
	Seeds        int             `json:"seeds"`
	RecordsInput int             `json:"records"`
}

func main() {
	memory := flag.Int64("memory", 0, "play one scenario of this many records, print the resident memory in KiB and end")
	largest := flag.Int64("largest", 0, "with -memory: records of the largest lease; 0: the default")
	flag.Parse()
	if *memory > 0 {
		fmt.Println(playForMemory(*memory, *largest))
		return
	}
	f := figures{Seeds: seeds, RecordsInput: records}
	f.Four = compare("10:10:10:1", four)
	f.Two = compare("10:1", two)
	f.Ratio, f.RatioMax = f.Four["headrace"].Ratio.Median, f.Four["headrace"].Ratio.Max
	f.Ratio2, f.Ratio2Max = f.Two["headrace"].Ratio.Median, f.Two["headrace"].Ratio.Max
	f.PlannerNS = planner()
	// The core remembers a fixed number of closed leases. With leases of one batch both inputs fill that
	// memory; with the default only the larger input does.
	f.RSS, f.RSSGrowth = growth(rows)
	f.RSS2, f.RSSGrowth2 = growth(0)
	out, err := json.Marshal(f)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(out))
}

// compare plays each seed with each side, one after the other.
func compare(title string, rates []float64) map[string]side {
	sides := []struct {
		name string
		play func(scenario) outcome
	}{
		{"headrace", playOurs},
		{"fixed_2_batches", func(s scenario) outcome { return playFixed(s, 2*rows) }},   // default of DLRover: 2 minibatches
		{"fixed_20_batches", func(s scenario) outcome { return playFixed(s, 20*rows) }}, // about as many grants as with headrace
		{"fixed_200_batches", func(s scenario) outcome { return playFixed(s, 200*rows) }},
	}
	played := make([][]outcome, len(sides))
	for seed := range uint64(seeds) {
		s := draw(records, rows, rates, seed+1)
		for k := range sides {
			played[k] = append(played[k], sides[k].play(s))
		}
		fmt.Fprintf(os.Stderr, "%s seed %d: headrace %.4f of the ideal, fixed shards of 2, 20, 200 batches %.4f %.4f %.4f\n", title, seed+1,
			played[0][seed].ratio, played[1][seed].ratio, played[2][seed].ratio, played[3][seed].ratio)
	}
	out := map[string]side{}
	for k := range sides {
		var ratios, grants, repeated []float64
		for _, o := range played[k] {
			ratios, grants, repeated = append(ratios, o.ratio), append(grants, float64(o.grants)), append(repeated, float64(o.repeated))
		}
		out[sides[k].name] = side{
			Ratio:  spread{median(ratios), slices.Min(ratios), slices.Max(ratios)},
			Grants: median(grants), Repeated: median(repeated),
		}
	}
	return out
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "makespan:", err)
	os.Exit(1)
}
