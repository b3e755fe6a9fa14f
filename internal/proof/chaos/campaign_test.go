package chaos

import (
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

func TestWhatIsDrawnFitsTheKindOfRound(t *testing.T) {
	for _, o := range []Options{{Model: "shared", Source: Files}, {Model: "private", Source: Kafka}, {Model: "replicated", Source: Kafka, Live: true}, {Model: "replicated", Source: Files}} {
		o.Draw = Choices()
		words := strings.Join(draw(o, rng(1)).words(), " ")
		for word, fits := range map[string]bool{
			"kill-server": o.Model == "shared", "bit-exact": o.Model == "replicated" && !o.Live, "empty-master": true,
			"sharded": false, "rewinds": false, // the last way to save that is named is `carried`
		} {
			if strings.Contains(words, word) != fits {
				t.Errorf("%s: %s", o.Name(), words)
			}
		}
	}
	if words := draw(Options{Model: "shared", Journal: true, Draw: Choices()}, rng(1)).words(); len(words) != 0 {
		t.Errorf("trainers that save nothing: %v", words)
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
