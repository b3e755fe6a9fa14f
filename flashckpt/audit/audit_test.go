package audit

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
	"pgregory.net/rapid"
)

func TestThePermutationIsTheOneOfTheProtocol(t *testing.T) {
	text, err := os.ReadFile("../../api/vectors/shuffle.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Permutations []struct {
			Blocks, Seed string
			Pass         uint32
			Order        []uint64
		}
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, c := range v.Permutations {
		n, err1 := strconv.ParseUint(c.Blocks, 10, 64)
		seed, err2 := strconv.ParseUint(c.Seed, 10, 64)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		p := newPermutation(n, seed, c.Pass)
		for i, want := range c.Order {
			if got := p.source(uint64(i)); got != want || p.order(want) != uint64(i) {
				t.Fatalf("%d blocks, seed %d, pass %d: place %d of the order has block %d, want %d; that block is at place %d", n, seed, c.Pass, i, got, want, p.order(want))
			}
			checked++
		}
	}
	if checked < 100 {
		t.Fatalf("only %d blocks were compared, want at least 100", checked)
	}
}

// unit is one unit of a source. The dumb model is a map from units to their states.
type unit struct {
	pass            uint32
	segment, offset int64
}

// drawn returns a random partition and the state of each of its units.
func drawn(t *rapid.T, shuffled bool) (*cut.Dataset, map[unit]string) {
	d := &cut.Dataset{Name: "d", Unit: "bytes"}
	if shuffled {
		d.Shuffle = &cut.Shuffle{Seed: rapid.Uint64().Draw(t, "seed"), Block: rapid.Int64Range(1, 9).Draw(t, "block")}
	}
	identity := "files:d"
	if shuffled && rapid.Bool().Draw(t, "bit_exact") {
		d.Shuffle.VirtualRanks, d.Shuffle.InOrder = rapid.Uint32Range(1, 4).Draw(t, "virtual ranks"), rapid.Bool().Draw(t, "in order")
		identity = fmt.Sprintf("files:d#%d/%d", rapid.Uint32Range(0, d.Shuffle.VirtualRanks-1).Draw(t, "virtual rank"), d.Shuffle.VirtualRanks)
	}
	p := cut.Partition{Identity: identity, Complete: true, Done: uint32(rapid.IntRange(0, 2).Draw(t, "done"))}
	id := int64(0)
	for i := range rapid.IntRange(1, 5).Draw(t, "segments") {
		start := rapid.Int64Range(0, 20).Draw(t, "start")
		p.Segments = append(p.Segments, sources.Segment{ID: id, Start: start, End: start + rapid.Int64Range(0, 40).Draw(t, "size"), Sealed: true,
			Name: fmt.Sprintf("folder/day_%d.tsv", i), Locator: []byte{byte(i)}})
		id += rapid.Int64Range(1, 3).Draw(t, "next id")
	}
	fate := map[unit]string{}
	for n := range p.Done + 2 {
		s := newSpace(d, &p, n)
		// line has the order of the pass, unit by unit. states has the state of each.
		var line []cut.Place
		for _, r := range s.whole() {
			for at := r.Start; at < r.End; at++ {
				line = append(line, cut.Place{Segment: r.Segment, Offset: at})
			}
		}
		ps := cut.Pass{Pass: n}
		low := len(line)
		if n >= p.Done {
			low = rapid.IntRange(0, len(line)).Draw(t, "low")
		}
		states := make([]string, len(line))
		for i := 0; i < len(line); {
			state := "in"
			if i >= low {
				state = rapid.SampledFrom([]string{"out", "in", "excluded", "dropped"}).Draw(t, "state")
			} else if rapid.IntRange(0, 9).Draw(t, "hole") == 0 {
				state = "excluded"
			}
			for range rapid.IntRange(1, 15).Draw(t, "run") {
				if i == len(line) || i == low && state == "in" {
					break
				}
				states[i] = state
				i++
			}
			if i == low && i < len(line) && states[i] == "" {
				states[i] = "out"
				i++
			}
		}
		for i, state := range states {
			at := line[i]
			r := cut.Piece{Segment: at.Segment, Start: at.Offset, End: at.Offset + 1}
			if i >= low {
				switch state {
				case "in":
					ps.Ranges = append(ps.Ranges, one(at, cut.Acked))
				case "excluded":
					ps.Ranges = append(ps.Ranges, one(at, cut.Excluded))
				case "dropped":
					ps.Ranges = append(ps.Ranges, one(at, cut.Dropped))
					ps.Units.Dropped++
				}
			}
			if state == "excluded" {
				p.Excluded = append(p.Excluded, cut.Exclusion{Pass: n, Piece: r, Units: 1, Kind: "lost", Reason: "why"})
			}
			if src := s.source(cut.Set{r}); len(src) == 1 {
				fate[unit{n, src[0].Segment, src[0].Start}] = state
			}
		}
		if n >= p.Done {
			switch {
			case low < len(line):
				ps.Low = line[low]
			case len(line) > 0:
				ps.Low = cut.Place{Segment: line[low-1].Segment, Offset: line[low-1].Offset + 1}
			default:
				ps.Low = cut.Place{Segment: p.Segments[0].ID, Offset: p.Segments[0].Start}
				if shuffled {
					ps.Low = cut.Place{}
				}
			}
			p.Passes = append(p.Passes, ps)
		}
	}
	d.Partitions = []cut.Partition{p}
	c := &cut.Cut{Version: 1, ID: 1, Rank: cut.Group, Job: "j", Model: "replicated", WorldSize: 1, Exact: true, Datasets: []cut.Dataset{*d}}
	if err := c.Validate(); err != nil {
		t.Fatalf("this test has drawn a cut that is not valid: %v", err)
	}
	return d, fate
}

// one returns a range of one unit.
func one(at cut.Place, kind cut.Kind) cut.Range {
	return cut.Range{Start: at, End: cut.Place{Segment: at.Segment, Offset: at.Offset + 1}, Kind: kind}
}

func cutOf(d *cut.Dataset) *cut.Cut {
	return &cut.Cut{Version: 1, ID: 1, Rank: cut.Group, Job: "j", Model: "replicated", WorldSize: 1, Exact: true, Datasets: []cut.Dataset{*d}}
}

func TestAnAuditSaysOfEachUnitWhatTheDumbModelSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, fate := drawn(t, rapid.Bool().Draw(t, "shuffled"))
		p := &d.Partitions[0]
		in := map[unit]bool{}
		for pass := range Passes(d, p) {
			units := int64(0)
			for _, r := range pass.Ranges {
				for at := r.Start; at < r.End; at++ {
					in[unit{pass.Pass, r.Segment, at}] = true
					units++
				}
			}
			if units != pass.Units || pass.Vague != 0 {
				t.Fatalf("pass %d says %d units, but its ranges have %d; vague is %d, want 0", pass.Pass, pass.Units, units, pass.Vague)
			}
			for _, e := range pass.Excluded {
				for _, r := range e.Ranges {
					for at := r.Start; at < r.End; at++ {
						if fate[unit{pass.Pass, r.Segment, at}] != "excluded" {
							t.Fatalf("pass %d: the audit says that offset %d of segment %d is excluded, the model does not", pass.Pass, at, r.Segment)
						}
					}
				}
			}
			for u, state := range fate {
				if u.pass == pass.Pass && state == "out" && pass.Whole {
					t.Fatalf("the audit says that pass %d is whole, but %v is out", pass.Pass, u)
				}
			}
		}
		for u, state := range fate {
			if in[u] != (state == "in") {
				t.Fatalf("%v is in the audit's ranges: %v, but the model says %s", u, in[u], state)
			}
			delete(in, u)
		}
		if len(in) > 0 {
			t.Fatalf("the audit's ranges have units that the source does not have: %v", in)
		}
		// Contains says the same for each unit.
		for i := range p.Segments {
			g := &p.Segments[i]
			for at := g.Start; at < g.End; at++ {
				found, _ := Contains(cutOf(d), Record{g.Name, at})
				if len(found) != 1 {
					t.Fatalf("%s/%d was found in %+v, want one partition", g.Name, at, found)
				}
				for _, v := range found[0].Passes {
					if want := fate[unit{v.Pass, g.ID, at}]; v.State != want {
						t.Fatalf("%s/%d in pass %d is %s, want %s", g.Name, at, v.Pass, v.State, want)
					}
				}
			}
		}
	})
}

func TestADiffIsWhatOneHasAndTheOtherNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shuffled := rapid.Bool().Draw(t, "shuffled")
		a, fateA := drawn(t, shuffled)
		// b is the same input with fewer passes settled.
		b, fateB := *a, map[unit]string{}
		pb := a.Partitions[0]
		pb.Passes, pb.Excluded = nil, nil
		if len(a.Partitions[0].Passes) > 0 {
			pb.Passes = a.Partitions[0].Passes[:1]
		}
		for _, e := range a.Partitions[0].Excluded {
			if e.Pass <= pb.Done {
				pb.Excluded = append(pb.Excluded, e)
			}
		}
		b.Partitions = []cut.Partition{pb}
		for u, state := range fateA {
			if u.pass <= pb.Done {
				fateB[u] = state
			}
		}
		diffs, err := Diff(cutOf(a), cutOf(&b))
		if err != nil {
			t.Fatal(err)
		}
		only := map[unit]bool{}
		for _, d := range diffs {
			if len(d.OnlyB) > 0 || d.UnitsB > 0 {
				t.Fatalf("the second cut has nothing that the first one lacks, but the difference is %+v", d)
			}
			for _, r := range d.OnlyA {
				for at := r.Start; at < r.End; at++ {
					only[unit{d.Pass, r.Segment, at}] = true
				}
			}
		}
		for u, state := range fateA {
			if want := state == "in" && fateB[u] != "in"; only[u] != want {
				t.Fatalf("%v is only in the first cut: %v, want %v", u, only[u], want)
			}
		}
		back, err := Diff(cutOf(&b), cutOf(a))
		if err != nil || len(back) != len(diffs) {
			t.Fatalf("the difference the other way round is %v (%v), want %d entries", back, err, len(diffs))
		}
	})
}

func TestCutsWhosePositionsMeanOtherRecordsAreNotCompared(t *testing.T) {
	make := func(change func(*cut.Dataset)) *cut.Cut {
		d := &cut.Dataset{Name: "d", Unit: "bytes", Partitions: []cut.Partition{{Identity: "files:d", Complete: true, Done: 1,
			Segments: []sources.Segment{{ID: 1, End: 100, Sealed: true, Name: "a.tsv", Locator: []byte("a")}}}}}
		change(d)
		return cutOf(d)
	}
	as := make(func(*cut.Dataset) {})
	for want, change := range map[string]func(*cut.Dataset){
		"segment 1 is a.tsv": func(d *cut.Dataset) { d.Partitions[0].Segments[0].Locator = []byte("b") },
		"shuffle":            func(d *cut.Dataset) { d.Shuffle = &cut.Shuffle{Seed: 1, Block: 10} },
		"its unit is bytes":  func(d *cut.Dataset) { d.Unit = "records" },
	} {
		if _, err := Diff(as, make(change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the comparison got %v, want a refusal that says %s", err, want)
		}
	}
	// A dataset that only one cut has is a difference of that cut.
	d, err := Diff(as, make(func(d *cut.Dataset) { d.Name = "e" }))
	if err != nil || len(d) != 2 || d[0].UnitsA != 100 || d[1].UnitsB != 100 {
		t.Errorf("the difference of two datasets is %+v (%v), want 100 units on each side", d, err)
	}
}

func TestARecordIsFoundByPathTopicIdentityOrTheEndOfItsPath(t *testing.T) {
	c := cutOf(&cut.Dataset{Name: "d", Unit: "records", Partitions: []cut.Partition{
		{Identity: "kafka:c/t/0", Segments: []sources.Segment{{ID: 0, Start: 10, End: 50, Sealed: true, Name: "clicks/0"}, {ID: 1, Start: 50, End: 60, Name: "clicks/0"}},
			Passes: []cut.Pass{{Low: cut.Place{Segment: 1, Offset: 55}, Units: cut.Units{Acked: 45}, Records: &cut.Tally{Rows: 45}}}},
		{Identity: "kafka:c/t/10", Segments: []sources.Segment{{ID: 0, Start: 10, End: 60, Sealed: true, Name: "old/clicks/0"}}},
	}})
	for text, want := range map[string]string{
		"clicks/0/54":     "clicks/0 in",
		"clicks/0/49":     "clicks/0 in",
		"clicks/0/55":     "clicks/0 out",
		"clicks/0/1000":   "clicks/0 out", // the segment may have grown
		"clicks/0/9":      "",
		"kafka:c/t/0/12":  "clicks/0 in",
		"old/clicks/0/12": "old/clicks/0",
		"0/12":            "clicks/0 in, old/clicks/0",
	} {
		r, err := ParseRecord(text)
		if err != nil {
			t.Fatal(err)
		}
		found, names := Contains(c, r)
		var got []string
		for _, w := range found {
			line := w.Name
			for _, v := range w.Passes {
				line += " " + v.State
			}
			got = append(got, line)
			if w.In() != strings.Contains(line, " in") {
				t.Errorf("%s: In is %v, but the states are %s", text, w.In(), line)
			}
		}
		if strings.Join(got, ", ") != want || len(names) != 2 {
			t.Errorf("%s was found as %q, want %q; the names are %v, want 2", text, got, want, names)
		}
	}
	for _, text := range []string{"clicks", "clicks/x", "/12", "", "clicks/-1", "clicks/0/99999999999999999999"} {
		if _, err := ParseRecord(text); err == nil {
			t.Errorf("%q was accepted as a record", text)
		}
	}
}

// 70 of a partition's 100 settled positions had records. Nobody knows which. So a settled position
// counts as a record only if the source says that it has one.
func TestASettledPositionIsNoRecordUntilTheSourceSaysSo(t *testing.T) {
	part := cut.Partition{Identity: "kafka:c/t/0", Segments: []sources.Segment{{ID: 0, End: 200, Name: "clicks/0"}},
		Passes: []cut.Pass{{Low: cut.Place{Offset: 100}, Units: cut.Units{Acked: 100}, Records: &cut.Tally{Rows: 70}}}}
	c := cutOf(&cut.Dataset{Name: "d", Unit: "records", Partitions: []cut.Partition{part}})
	for offset, want := range map[int64]string{50: "settled", 150: "out"} {
		for held, then := range map[bool]string{true: "in", false: "empty"} {
			found, _ := Contains(c, Record{"clicks/0", offset})
			if len(found) != 1 || found[0].Passes[0].State != want || found[0].Unsure() != (want == "settled") || found[0].In() {
				t.Fatalf("position %d is %+v, want %s", offset, found, want)
			}
			if found[0].HasRecord(held); want == "out" {
				then = "out"
			}
			if found[0].Passes[0].State != then || found[0].In() != (then == "in") {
				t.Errorf("position %d, which has a record: %v, is %+v, want %s", offset, held, found, then)
			}
		}
	}
	for name, records := range map[string]*cut.Tally{"not counted": nil, "counted in part": {Rows: 70, Untold: 30}} {
		c.Datasets[0].Partitions[0].Passes[0].Records = records
		if found, _ := Contains(c, Record{"clicks/0", 50}); !found[0].Unsure() {
			t.Errorf("the records are %s, but position 50 is %+v, want unsure", name, found)
		}
	}
	c.Datasets[0].Partitions[0].Passes[0].Records = &cut.Tally{Rows: 100}
	if found, _ := Contains(c, Record{"clicks/0", 50}); !found[0].In() {
		t.Errorf("every position had a record, but position 50 is %+v, want in", found)
	}
}

func TestUnitsThatWereDroppedBelowTheLowMarkAreVague(t *testing.T) {
	c := cutOf(&cut.Dataset{Name: "d", Unit: "bytes", Partitions: []cut.Partition{{Identity: "files:d",
		Segments: []sources.Segment{{ID: 0, End: 100, Sealed: true, Name: "a"}},
		Passes: []cut.Pass{{Low: cut.Place{Segment: 0, Offset: 50}, Units: cut.Units{Acked: 40, Dropped: 20},
			Ranges: cut.Ranges{{Start: cut.Place{Segment: 0, Offset: 70}, End: cut.Place{Segment: 0, Offset: 80}, Kind: cut.Acked}, {Start: cut.Place{Segment: 0, Offset: 80}, End: cut.Place{Segment: 0, Offset: 90}, Kind: cut.Dropped}}}}}}})
	for pass := range Passes(&c.Datasets[0], &c.Datasets[0].Partitions[0]) {
		if pass.Vague != 10 {
			t.Errorf("%d units are vague, want 10", pass.Vague)
		}
	}
	for at, want := range map[int64]Verdict{10: {State: "in", Vague: true}, 75: {State: "in"}, 85: {State: "dropped"}, 60: {State: "out"}} {
		if found, _ := Contains(c, Record{"a", at}); len(found) != 1 || found[0].Passes[0] != want {
			t.Errorf("position %d is %+v, want %+v", at, found, want)
		}
	}
}
