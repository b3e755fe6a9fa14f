package chaos

import (
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/shardsvc/cut"
)

func TestTheEndIsEverythingButWhatTheLastCutDrops(t *testing.T) {
	for _, c := range []struct {
		name    string
		listed  []key // as dropped, in the last cut
		rounds  int   // that each rank yielded in the last start of the group
		rows    int   // in a batch of each of the two ranks
		counted int64 // dropped records that the master counts
		lost    int
		wrong   string
	}{
		{"all that is left is listed", []key{4, 5}, 2, 1, 20, 0, ""},
		{"one that is left is not listed", []key{5}, 2, 1, 20, 1, "the end lacks 1 records"},
		{"one that is in the model is listed", []key{3, 4, 5}, 2, 1, 30, 0, "too often"},
		{"the last group had no round, and no checkpoint", nil, 0, 1, 20, 0, ""},
		{"the last group had no round, and nothing was dropped", nil, 0, 1, 0, 2, "the master has dropped none"},
		{"more than some rounds", []key{4, 5}, 2, 0, 20, 0, "2 records of small are in no model"},
	} {
		in := []*input{{name: "small", records: 6, passes: 1, drops: true, dropped: c.counted}}
		last := map[int]*life{}
		for rank := range 2 {
			l := &life{rank: rank, no: 1, done: true, model: 1, rows: []int{c.rows}}
			for n := range c.rounds {
				l.batches = append(l.batches, &batch{stream: 1, number: n + 1})
			}
			last[rank] = l
		}
		dropped := map[key]bool{}
		for _, k := range c.listed {
			dropped[k] = true
		}
		crew := &crew{o: Options{Model: "replicated"}, inputs: in, choices: choices{rounds: true, drops: true}}
		found := map[cut.ID]kept{1: {models: []model{weighed(in, []uint8{1, 1, 1, 1, 0, 0})}, dropped: dropped}}
		var v Verdict
		crew.checkEnd(last, found, &v)
		if v.Lost != c.lost || v.Dropped != 2 || (c.wrong == "") != (len(v.Wrong) == 0) || !strings.Contains(strings.Join(v.Wrong, "\n"), c.wrong) {
			t.Errorf("%s: %+v, want %d lost and %q", c.name, v, c.lost, c.wrong)
		}
	}
}

func TestDropIsDrawnForRoundsOfInputsThatEnd(t *testing.T) {
	for seed := range uint64(20) {
		for _, o := range []Options{
			{Model: "replicated", Source: Files}, {Model: "replicated", Source: Kafka, Live: true}, {Model: "private", Source: Files},
		} {
			o.Draw = []string{"drop"}
			c := draw(o, rng(seed))
			if want := o.Model == "replicated" && !o.Live; c.drops != want || c.drops && (!c.rounds || c.exact) {
				t.Errorf("%s, live %v, seed %d: %v", o.Model, o.Live, seed, c.words())
			}
		}
		c := draw(Options{Model: "replicated", Source: Files, Draw: []string{"rounds"}}, rng(seed))
		if c.drops != slices.Contains(c.words(), "drop") {
			t.Errorf("seed %d: drops is %v, and it is called %v", seed, c.drops, c.words())
		}
	}
}

func TestACutThatListsDropsNamesThemAndNoOtherDoes(t *testing.T) {
	s := newSample(t)
	p := &s.m.Cut.Datasets[0].Partitions[0]
	places := s.in.places["part-3.lines"]
	from, to := placeOf(t, places, 60), placeOf(t, places, 70)
	p.Passes[0].Ranges = slices.Insert(p.Passes[0].Ranges, 0, cut.Range{Start: cut.Place{Segment: 3, Offset: from}, End: cut.Place{Segment: 3, Offset: to}, Kind: cut.Dropped})
	p.Passes[0].Units.Dropped = to - from
	p.Dropped = []cut.Drop{{Pass: 0, Piece: cut.Piece{Segment: 3, Start: from, End: to}, Units: to - from, Step: 3}}
	if _, _, err := members(&s.m.Cut, []*input{s.in}); err == nil || !strings.Contains(err.Error(), "gives no reason") {
		t.Errorf("the cut lists drops, and the input does not drop: want an error, got %v", err)
	}
	s.in.drops = true
	in, dropped, err := members(&s.m.Cut, []*input{s.in})
	if err != nil || len(in) != 60 || len(dropped) != 10 || !dropped[60] || dropped[70] {
		t.Errorf("%d in, %v dropped, %v", len(in), dropped, err)
	}
}
