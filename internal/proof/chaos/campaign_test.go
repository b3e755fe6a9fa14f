package chaos

import (
	"slices"
	"strings"
	"testing"
)

func TestRoundsHaveEveryKindOnce(t *testing.T) {
	for _, c := range []struct {
		c    Campaign
		want int
	}{
		{Campaign{Sources: []string{Files, Kafka}, Lives: []bool{false, true}, Models: Models}, 9},
		{Campaign{Sources: []string{Files}, Lives: []bool{false}, Models: Models}, 3},
		{Campaign{Sources: []string{Kafka}, Lives: []bool{true}, Models: []string{"private"}}, 1},
		{Campaign{Sources: []string{Files, Kafka}, Lives: []bool{false}, Models: Models}, 6},
	} {
		seen := map[string]bool{}
		for _, o := range c.c.kinds() {
			seen[o.Name()] = true
		}
		if len(seen) != c.want || len(c.c.kinds()) != c.want {
			t.Errorf("%v of %v: %v", c.c.Sources, c.c.Models, seen)
		}
	}
}

func TestMemoryIsDrawnForModelsThatCanLieThere(t *testing.T) {
	for _, model := range Models {
		for seed := range uint64(20) {
			c := draw(Options{Model: model, Source: Files, Draw: []string{"memory"}}, rng(seed))
			if c.memory != (model != "shared") || c.memory && (c.saves != byCheckpointer || c.sharded || c.exact) {
				t.Errorf("%s, seed %d: %v", model, seed, c.words())
			}
		}
	}
}

func TestCopiesOnOtherNodesAreDrawnWithMemoryOnly(t *testing.T) {
	with, without := 0, 0
	for seed := range uint64(200) {
		switch c := draw(Options{Model: "replicated", Source: Files}, rng(seed)); {
		case c.copies && !c.memory:
			t.Fatalf("seed %d: %v", seed, c.words())
		case c.copies:
			with++
		case c.memory:
			without++
		}
		if c := draw(Options{Model: "private", Source: Files, Draw: []string{"replicas"}}, rng(seed)); !c.memory || !c.copies {
			t.Fatalf("seed %d with --draw replicas: got %v, want memory and copies", seed, c.words())
		}
	}
	if with == 0 || without == 0 {
		t.Errorf("%d runs in memory with copies, %d without", with, without)
	}
}

func TestAnOlderCheckpointThanThatInMemoryIsALostEpoch(t *testing.T) {
	a := func(rank, group int, held []int64, back int64, at int64) *life {
		l := &life{rank: rank, group: group, restored: []restored{{order: back, at: at, memory: back > 0}}}
		for i, order := range held {
			l.held = append(l.held, whole{order: order, at: at + 1 + int64(i)})
		}
		return l
	}
	for _, tc := range []struct {
		name     string
		model    string
		lives    []*life
		lost     []lostMemory
		promises int
		epochs   int
	}{
		{"the newest", "private", []*life{a(0, 0, []int64{1, 2}, 0, 10), a(0, 0, nil, 2, 20)}, nil, 1, 0},
		{"an older one", "private", []*life{a(0, 0, []int64{1, 2}, 0, 10), a(0, 0, nil, 1, 20)}, nil, 1, 1},
		{"of a lost node", "private", []*life{a(0, 0, []int64{1, 2}, 0, 10), a(0, 0, nil, 0, 20)}, []lostMemory{{-1, 0, 15}}, 0, 0},
		{"of another rank's", "private", []*life{a(0, 0, []int64{1, 2}, 0, 10), a(0, 0, nil, 1, 20)}, []lostMemory{{1, 0, 15}}, 1, 1},
		{"what one rank has not", "replicated", []*life{a(0, 0, []int64{1, 2}, 0, 10), a(1, 0, []int64{1}, 0, 10), a(0, 1, nil, 1, 20), a(1, 1, nil, 1, 20)}, nil, 2, 0},
		{"less than all have", "replicated", []*life{a(0, 0, []int64{1, 2}, 0, 10), a(1, 0, []int64{1, 2}, 0, 10), a(0, 1, nil, 1, 20), a(1, 1, nil, 1, 20)}, nil, 2, 2},
	} {
		c := &crew{o: Options{Model: tc.model}, nodes: nodes{full: -1, lost: tc.lost}}
		var v Verdict
		var m InMemory
		c.judgeMemory(tc.lives, &v, &m)
		if m.Promises != tc.promises || m.EpochsLost != tc.epochs || len(v.Wrong) != tc.epochs {
			t.Errorf("%s: %+v %v", tc.name, m, v.Wrong)
		}
	}
}

func TestWhatIsDrawnFitsTheKindOfRound(t *testing.T) {
	for _, o := range []Options{{Model: "shared", Source: Files}, {Model: "private", Source: Kafka}, {Model: "replicated", Source: Kafka, Live: true}, {Model: "replicated", Source: Files}} {
		o.Draw = Choices()
		words := strings.Join(draw(o, rng(1)).words(), " ")
		for word, fits := range map[string]bool{
			"kill-server": o.Model == "shared", "bit-exact": o.Model == "replicated" && !o.Live, "empty-master": true, "rounds": o.Model == "replicated", "drop": false, // an input without an end drops nothing, and bit_exact excludes drop
			"sharded": false, "rewinds": false, // the ways to save exclude each other; `carried` is the last of Choices, so it wins
		} {
			if strings.Contains(words, word) != fits {
				t.Errorf("%s: %s", o.Name(), words)
			}
		}
	}
	if words := draw(Options{Model: "replicated", Source: Files, Draw: []string{"rounds"}}, rng(1)).words(); !slices.Contains(words, "rounds") {
		t.Errorf("rounds: %v", words)
	}
	if words := draw(Options{Model: "shared", Journal: true, Draw: Choices()}, rng(1)).words(); len(words) != 0 {
		t.Errorf("with --journal, where trainers save nothing, got the choices %v, want none", words)
	}
}

func TestARoundThatFailedSaysHowToRunItAgain(t *testing.T) {
	o := Options{Source: Kafka, Live: true, Model: "private", Seed: 77, Kills: 12, Draw: []string{"bind"}}
	for _, want := range []string{"--source kafka", "--live", "--model private", "--seed 77", "--kills 12", "--rounds 1", "--draw bind"} {
		if !strings.Contains(o.Again(), want) {
			t.Errorf("%s has no %s", o.Again(), want)
		}
	}
}
