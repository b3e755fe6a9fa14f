//go:build kafka

package main

import (
	"regexp"
	"testing"
)

// A broker is away for longer than three attempts to read. A dataset with an end waits, reports that,
// and goes on by itself.
func TestADatasetWithAnEndWaitsForItsBrokerWithoutAnEnd(t *testing.T) {
	b := restartedKafka.get(t)
	const n = 20_000
	topic := newTopic(t, b, 1, nil)
	events(t, b, topic, 1, 0, n)
	w := newWorld(t)
	w.example(b, topic)
	up := w.up("-f", "events.yaml")
	trainer, goOn := w.heldTrainer("a")
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	goOn()
	given := regexp.MustCompile(`rows are pending again.* (start=\d+) .*source_away`)
	for _, tries := range []int{2, 4} { // tries of one range; each lasts 30 s
		trainer.until("attempts to read", func() bool {
			of := map[string]int{}
			for _, m := range given.FindAllStringSubmatch(up.err.String(), -1) {
				of[m[1]]++
			}
			for _, k := range of {
				if k >= tries {
					return true
				}
			}
			return false
		})
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := trainer.wait(); r.code != 0 {
		t.Fatalf("the trainer ended with exit code %d\n%s%s", r.code, r.out, r.err)
	}
	if ids, total := w.seen(); len(ids) != n || total != n {
		t.Errorf("%d different records were trained on %d times in all, want %d once each", len(ids), total, n)
	}
	up.stop()
}
