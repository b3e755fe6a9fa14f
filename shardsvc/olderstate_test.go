package shardsvc

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

var recordStates = flag.Bool("record-states", false, "write testdata/older/states anew: only ever from a released version")

// recorded names the scenarios whose last state lies in testdata/older/states. They have each
// model kind, cuts of each state, excluded ranges, live partitions and virtual ranks.
var recorded = []string{"shuffle/bit_exact", "cut/carried", "cut/history", "cut/private", "cut/removed", "cut/replicated", "cut/rewind", "cut/shared",
	"cut/history_folds", "live/shared", "live/tail", "loss/excluded", "loss/rewound", "loss/shuffled_cut", "dataset/passes", "group/private_new_process",
	"group/replicated_generations", "shuffle/blocks", "lease/steal", "live/strict", "lease/tries_end"}

// TestAnOlderStateOpens loads pairs that an earlier version stored. They must mean the same as
// then: the settled and excluded records, the kept cuts, and the marks for the source.
func TestAnOlderStateOpens(t *testing.T) {
	if *recordStates {
		recordOlderStates(t)
	}
	paths, err := filepath.Glob("testdata/older/states/*.txt")
	if err != nil || len(paths) < len(recorded) {
		t.Fatalf("testdata/older/states has %d states, want %d: %v", len(paths), len(recorded), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			stored, want, ok := strings.Cut(string(raw), "means\n")
			lines := strings.Split(strings.TrimSpace(stored), "\n")
			model, ok2 := strings.CutPrefix(lines[0], "model ")
			if !ok || !ok2 {
				t.Fatalf("%s begins with %q", path, lines[0])
			}
			w := newWorld(t, Config{Job: "j", Model: strings.TrimSpace(model)})
			clear(w.store)
			for _, line := range lines[1:] {
				k, v, _ := strings.Cut(line, " ")
				key, err1 := hex.DecodeString(k)
				value, err2 := hex.DecodeString(v)
				if err1 != nil || err2 != nil {
					t.Fatal(line, err1, err2)
				}
				w.store[string(key)] = value
			}
			w.restart()
			if got := w.meaning(); got != want {
				t.Errorf("the stored state now means\n%s\nwhen it was stored it meant\n%s", got, want)
			}
			w.restart() // what this version wrote means the same
			if got := w.meaning(); got != want {
				t.Errorf("stored again by this version, it means\n%s\nwhen it was stored it meant\n%s", got, want)
			}
		})
	}
}

// meaning is everything that follows from stored pairs, without the leases.
func (w *world) meaning() string {
	var b bytes.Buffer
	c := w.core
	j := c.Job()
	fmt.Fprintf(&b, "epoch %d generation %d of %d\n", j.Epoch, j.Generation, j.WorldSize)
	for _, d := range c.Datasets() {
		n := d.Counts
		fmt.Fprintf(&b, "dataset %d %s %s %q pass %d: listed %d planned %d pending %d settled %d acked %d excluded %d dropped %d bound %d rows %d untold %d\n", d.ID, d.Name, d.State, d.Reason, d.Pass,
			n.Listed, n.Planned, n.Pending, n.Settled, n.Acked, n.Excluded, n.Dropped, n.Bound, d.Records.Rows, d.Records.Untold)
		for _, p := range c.Partitions(d.ID) {
			fmt.Fprintf(&b, " partition %d %s of %s complete %v last %d segments %d head %d growing %v\n", p.Number, p.Label, p.Source, p.Complete, p.LastSegment, p.Segments, p.Head, p.Growing)
		}
		for _, p := range c.State(w.now, d.ID, 0, 100) {
			fmt.Fprintf(&b, " partition %d pass %d: %+v\n", p.Number, p.Pass, p.Distances)
		}
		for _, m := range c.BoundMarks(d.ID) {
			fmt.Fprintf(&b, " bound below %d:%d:%d:%d, %d to head\n", m.Partition, m.Pass, m.Segment, m.Offset, m.Units)
		}
		for _, n := range c.Needed(d.ID) {
			fmt.Fprintf(&b, " needed from %d:%d:%d\n", n.Partition, n.Segment, n.Offset)
		}
		some, _ := c.Excluded(d.ID, 0, 100)
		for _, e := range some {
			fmt.Fprintf(&b, " excluded %d:%d:%d [%d, %d) %s %s\n", e.Partition, e.Pass, e.Segment, e.Start, e.End, e.Kind, e.Reason)
		}
	}
	for _, k := range c.Cuts() {
		fmt.Fprintf(&b, "cut %x %s order %d epoch %d generation %d rank %d step %d at %q: %+v rows %d\n", k.ID, k.State, k.Order, k.Epoch, k.Generation, k.Rank, k.Step, k.Path, k.Units, k.Records.Rows)
		if body, ok := c.CutBody(k.ID); ok {
			fmt.Fprintf(&b, "%s\n", textOf(body))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(w.store)) {
		if at, err := decodeKey([]byte(k)); err != nil || at.letter != keyRank {
			continue
		} else if v, err := decodeRank(w.store[k]); err == nil {
			fmt.Fprintf(&b, "rank %d of %x generation %d step %d: attached %v fenced %v others %v ended %v must %v called %v lost %v base %x choice %x\n", at.rank, v.incarnation, v.generation, v.step,
				v.attached, v.fenced, v.others, v.ended, v.must, v.called, v.lost, v.base, v.choice)
		}
	}
	return b.String()
}

func recordOlderStates(t *testing.T) {
	for _, name := range recorded {
		s := &script{}
		datadriven.RunTest(t, "testdata/scenarios/"+name+".txt", func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
		var b bytes.Buffer
		fmt.Fprintf(&b, "model %s\n", s.w.cfg.Model)
		for _, k := range slices.Sorted(maps.Keys(s.w.store)) {
			fmt.Fprintf(&b, "%x %x\n", k, s.w.store[k])
		}
		w := newWorld(t, Config{Job: "j", Model: s.w.cfg.Model})
		w.store = maps.Clone(s.w.store)
		w.restart()
		fmt.Fprintf(&b, "means\n%s", w.meaning())
		if err := os.WriteFile("testdata/older/states/"+strings.ReplaceAll(name, "/", "_")+".txt", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
