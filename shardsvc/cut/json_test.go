package cut

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/headrace/headrace/sources"
	"pgregory.net/rapid"
)

// anyCut returns a cut that a core could freeze: settled ranges of a line of segments, or
// of a shuffled line.
func anyCut(t *rapid.T, model string) *Cut {
	c := &Cut{ID: ID(rapid.Uint64Min(1).Draw(t, "id")), Job: "j", Model: model, Epoch: rapid.Uint32().Draw(t, "epoch"), Generation: rapid.Uint32().Draw(t, "generation"),
		Rank: Group, Step: rapid.Int64Min(0).Draw(t, "step"), Order: rapid.Uint64Max(1<<62-1).Draw(t, "order"), WorldSize: rapid.Uint32Min(1).Draw(t, "world"), Exact: model != "shared" || rapid.Bool().Draw(t, "exact"), Datasets: []Dataset{}}
	if model == "private" {
		c.Rank = Rank(rapid.Uint32().Draw(t, "rank"))
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "datasets") {
		d := Dataset{Name: string(rune('a' + i)), Unit: "bytes", Partitions: []Partition{}}
		if rapid.Bool().Draw(t, "shuffled") {
			d.Shuffle = &Shuffle{Seed: rapid.Uint64().Draw(t, "seed"), Block: rapid.Int64Range(1, 50).Draw(t, "block")}
		}
		for j := range rapid.IntRange(0, 3).Draw(t, "partitions") {
			d.Partitions = append(d.Partitions, anyPartition(t, &d, j))
		}
		c.Datasets = append(c.Datasets, d)
	}
	return c
}

func anyPartition(t *rapid.T, d *Dataset, n int) Partition {
	p := Partition{Number: uint32(n), Identity: "files:" + string(rune('a'+n)), Complete: true, Passes: []Pass{}}
	line, blocks := []Place{}, int64(0)
	for i := range rapid.Int64Range(1, 4).Draw(t, "segments") {
		g := sources.Segment{ID: i * 2, Start: rapid.Int64Range(0, 50).Draw(t, "start"), Sealed: true, Name: "f", Locator: rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "locator")}
		g.End = g.Start + rapid.Int64Range(0, 60).Draw(t, "size")
		p.Segments = append(p.Segments, g)
		for at := g.Start; at < g.End; at++ {
			line = append(line, Place{Segment: g.ID, Offset: at})
		}
		if d.Shuffle != nil {
			blocks += (g.End - g.Start + d.Shuffle.Block - 1) / d.Shuffle.Block
		}
	}
	if d.Shuffle != nil {
		line = line[:0]
		for at := range blocks * d.Shuffle.Block {
			line = append(line, Place{Offset: at})
		}
	}
	if len(line) == 0 {
		return p
	}
	if p.Done = uint32(rapid.IntRange(0, 2).Draw(t, "done")); p.Done > 0 {
		p.DoneUnits.Acked = int64(p.Done) * int64(len(line))
		p.DoneRecords = anyRecords(t, p.DoneUnits.Acked)
	}
	ps := Pass{Pass: p.Done}
	at := rapid.IntRange(0, len(line)-1).Draw(t, "low")
	ps.Low, ps.Units.Acked = line[at], int64(at)
	ps.Records = anyRecords(t, ps.Units.Acked)
	for at += 1; at < len(line); {
		end := min(at+rapid.IntRange(1, 40).Draw(t, "run"), len(line))
		last := line[end-1]
		ps.Ranges = append(ps.Ranges, Range{Start: line[at], End: Place{Segment: last.Segment, Offset: last.Offset + 1},
			Kind: rapid.SampledFrom([]Kind{Acked, Excluded, Dropped}).Draw(t, "kind")})
		at = end + rapid.IntRange(1, 20).Draw(t, "gap")
	}
	p.Passes = append(p.Passes, ps)
	p.Excluded = append(p.Excluded, Exclusion{Pass: 0, Piece: Piece{line[0].Segment, line[0].Offset, line[0].Offset + 1}, Units: 1, Kind: "lost", Reason: "why", When: 7})
	return p
}

func anyRecords(t *rapid.T, units int64) *Tally {
	n := &Tally{Rows: rapid.Int64Range(0, units).Draw(t, "rows"), Untold: rapid.Int64Range(0, units).Draw(t, "untold")}
	if n.Rows > 0 && rapid.Bool().Draw(t, "have times") {
		n.Oldest = rapid.Int64Range(1, 1<<42).Draw(t, "oldest")
		n.Newest = n.Oldest + rapid.Int64Range(0, 1<<42).Draw(t, "longer")
	}
	return n
}

// settledUnits lists every unit of a pass's ranges. JSON splits ranges at the borders of
// segments, so the ranges differ afterwards, but their units are the same.
func settledUnits(p *Partition, ps *Pass, shuffled bool) map[Place]Kind {
	out := map[Place]Kind{}
	add := func(segment, start, end int64, kind Kind) {
		for at := start; at < end; at++ {
			out[Place{Segment: segment, Offset: at}] = kind
		}
	}
	for _, r := range ps.Ranges {
		if shuffled {
			add(0, r.Start.Offset, r.End.Offset, r.Kind)
			continue
		}
		for _, g := range p.Segments {
			start, end := g.Start, g.End
			if g.ID < r.Start.Segment || g.ID > r.End.Segment {
				continue
			}
			if g.ID == r.Start.Segment {
				start = r.Start.Offset
			}
			if g.ID == r.End.Segment {
				end = r.End.Offset
			}
			add(g.ID, start, end, r.Kind)
		}
	}
	return out
}

func TestACutIsTheSameAfterItsJSON(t *testing.T) {
	for _, model := range []string{"replicated", "private", "shared"} {
		t.Run(model, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := anyCut(t, model)
				text, err := c.EncodeJSON()
				if err != nil {
					t.Fatal(err)
				}
				got, err := ParseJSON(text)
				if err != nil {
					t.Fatal(err)
				}
				for i := range c.Datasets {
					for j := range c.Datasets[i].Partitions {
						p, q := &c.Datasets[i].Partitions[j], &got.Datasets[i].Partitions[j]
						for k := range p.Passes {
							shuffled := c.Datasets[i].Shuffle != nil
							if a, b := settledUnits(p, &p.Passes[k], shuffled), settledUnits(q, &q.Passes[k], shuffled); !reflect.DeepEqual(a, b) {
								t.Fatalf("%d/%d pass %d: %d units settled, after it %d", i, j, k, len(a), len(b))
							}
							p.Passes[k].Ranges, q.Passes[k].Ranges = nil, nil
						}
					}
				}
				if !reflect.DeepEqual(got, c) {
					t.Fatalf("after its JSON:\n%+v\nbefore:\n%+v", got, c)
				}
			})
		})
	}
}

func TestACutOfAnotherJobOrModelIsRefused(t *testing.T) {
	c := &Cut{Job: "mine", Model: "replicated"}
	for want, of := range map[string][2]string{"of job \"mine\"": {"yours", "replicated"}, "of a replicated model": {"mine", "private"}} {
		if err := c.Of(of[0], of[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", of, err, want)
		}
	}
	if err := c.Of("mine", "replicated"); err != nil {
		t.Error(err)
	}
}

// FuzzParseJSON: a cut from any bytes is read, and can then be written and stored, or
// it is refused with one of the three kinds of error.
func FuzzParseJSON(f *testing.F) {
	files, err := filepath.Glob("../../api/vectors/manifest/*_*.json")
	if err != nil || len(files) < 20 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		var m struct {
			Cut json.RawMessage `json:"cut"`
		}
		if json.Unmarshal(b, &m) == nil {
			f.Add([]byte(m.Cut))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseJSON(b)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		text, err := c.EncodeJSON()
		if err != nil {
			t.Fatalf("read, but cannot be written: %v", err)
		}
		again, err := ParseJSON(text)
		if err != nil {
			t.Fatalf("written, but cannot be read: %v", err)
		}
		if third, err := again.EncodeJSON(); err != nil || !bytes.Equal(text, third) {
			t.Fatalf("not the same again: %v\n%s\n%s", err, text, third)
		}
		if _, err := Decode(c.Append(nil)); err != nil {
			t.Fatalf("a manifest's cut cannot be stored: %v", err)
		}
	})
}
