//go:build kafka

package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/ckpt"
	"github.com/headrace/headrace/internal/view"
)

// lostAt is a set of single offsets of the topic.
type lostAt map[string]bool

func at(partition int, offset int64) string {
	return fmt.Sprintf("partition %d offset %d", partition, offset)
}

func offsets(t *testing.T, topic string, g *view.Gone) lostAt {
	t.Helper()
	all := lostAt{}
	if g == nil {
		return all
	}
	for _, r := range g.Ranges {
		no, err := strconv.Atoi(strings.TrimPrefix(r.Label, topic+"/"))
		if err != nil || r.Dataset != "events" || r.Unit != "records" || r.Pass != 0 || r.Passes != 1 {
			t.Errorf("the range that is gone is %+v", r)
		}
		for o := r.Start; o < r.End; o++ {
			all[at(no, o)] = true
		}
	}
	if g.More == 0 && int64(len(all)) != g.Units {
		t.Errorf("%d units are gone in all, but the ranges have %d", g.Units, len(all))
	}
	return all
}

// On a real Kafka: each checkpoint shows the deleted ranges that going back to it would need
// (docs/CUTS.md). With on_loss: stop, going back is refused. With continue, exactly these ranges become
// excluded.
func TestACheckpointWhoseDataKafkaHasDeletedIsNotRewindable(t *testing.T) {
	b := steadyKafka.get(t)
	const n, partitions = 6000, 3
	topic := newTopic(t, b, partitions, nil)
	events(t, b, topic, partitions, 0, n)
	w := newWorld(t)
	w.example(b, topic)
	text, err := os.ReadFile(w.path("events.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("events.yaml", string(text)+"guard: {every: 200ms}\n")
	up := w.up("-f", "events.yaml", "--model", "replicated")
	if _, ids := w.trained(23); len(ids) != 2300 {
		t.Fatalf("%d records came in 23 steps, want 2300", len(ids))
	}
	saved := map[int64]ckpt.View{}
	list := func() []ckpt.View { return decoded[[]ckpt.View](t, w.ok("ckpt", "list", "ckpt", "-o", "json")) }
	for _, c := range list() {
		saved[c.Step] = c
	}
	_, low, _ := w.inModel(saved[20].Path)
	for p, below := range low { // deletes the records of the newest checkpoint up to its first gap
		if err := b.DeleteRecords(t.Context(), topic, p, below); err != nil {
			t.Fatal(err)
		}
	}
	missing := func(step int64) lostAt {
		_, _, has := w.inModel(saved[step].Path)
		all := lostAt{}
		for p, below := range low {
			for o := range below {
				if !has(p, o) {
					all[at(p, o)] = true
				}
			}
		}
		return all
	}
	lost := missing(10)
	if len(lost) == 0 || len(missing(15)) == 0 {
		t.Fatalf("the deletion below %v takes no record that step 10 or step 15 needs, so this test shows nothing", low)
	}

	told := func(step int64) (c ckpt.View) {
		all := list()
		return all[slices.IndexFunc(all, func(c ckpt.View) bool { return c.Step == step })]
	}
	up.until("it is listed", func() bool { return maps.Equal(offsets(t, topic, told(10).Gone), lost) })
	for step, want := range map[int64]lostAt{10: lost, 15: missing(15), 20: {}} {
		if c := told(step); !maps.Equal(offsets(t, topic, c.Gone), want) || *c.Rewindable != (step == 20) || c.Ledger != "bound" {
			t.Errorf("the checkpoint of step %d is listed as %+v, want the deleted ranges %v", step, c, want)
		}
	}
	for _, args := range [][]string{{"ckpt", "list"}, {"ckpt", "list", "ckpt"}, {"ckpt", "show", saved[10].Path}} {
		if out := w.ok(args...); !strings.Contains(out, "bound, not rewindable") || !strings.Contains(out, " of dataset events, ") || !strings.Contains(out, "it stops the dataset") {
			t.Errorf("%v does not say that the checkpoint is not rewindable:\n%s", args, out)
		}
	}
	dry := func() ckpt.Rewound {
		return decoded[ckpt.Rewound](t, w.ok("rewind", "default", "--to", saved[10].Path, "--dry-run", "-o", "json"))
	}
	if v := dry(); v.Rewound || !strings.Contains(v.Refused, "cannot go back to step 10") || !maps.Equal(offsets(t, topic, v.Gone), lost) {
		t.Errorf("%+v", v)
	}
	r := w.run("rewind", "default", "--to", saved[10].Path, "--yes")
	if r.code != exitFailed || !strings.Contains(r.err, "the source has deleted records that would be read again: [") ||
		!strings.Contains(r.err, "go back to step 20 (cut "+saved[20].Cut) || !strings.Contains(r.err, "on_loss: continue") {
		t.Errorf("%+v", r)
	}
	if r := w.run("rewind", "default", "--to", "start", "--yes"); r.code != exitFailed || !strings.Contains(r.err, "cannot go back to the start") {
		t.Errorf("%+v", r)
	}
	if c := told(20); c.Ledger != "bound" {
		t.Errorf("a refused rewind has changed a checkpoint: %+v", c)
	}

	// A trainer that restores by itself is not refused. When it reads a deleted record, on_loss decides.
	// Until then it may train on other records and save, so it must keep the old checkpoints, which this
	// test still needs.
	if r := w.modelTrainer(0, "15", 20); r.code == 0 || !strings.Contains(r.err, "is lost at the source") || !strings.Contains(r.err, "on_loss: continue") {
		t.Errorf("a trainer that restored step 15 ended with %+v, want an error that says what is lost", r)
	}
	if !strings.Contains(up.err.String(), "the model went back to a checkpoint, and the source has deleted records after it") {
		t.Errorf("the log does not say that the source has deleted records after the checkpoint:\n%s", up.err)
	}

	w.write("events.yaml", string(text)+"guard: {every: 200ms}\non_loss: continue\n")
	w.ok("dataset", "apply", "-f", "events.yaml")
	w.ok("dataset", "resume", "events")
	excluded := func() lostAt {
		all := lostAt{}
		for _, e := range decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json")).Excluded {
			p := e.Partition[strings.LastIndexByte(e.Partition, '/')+1:]
			for o := e.Start; o < e.End; o++ {
				all[fmt.Sprintf("partition %s offset %d", p, o)] = true
			}
		}
		return all
	}
	up.until("what step 15 misses is excluded", func() bool { return maps.Equal(excluded(), missing(15)) })
	rest := missing(10)
	for o := range missing(15) {
		delete(rest, o)
	}
	if c := told(10); !*c.Rewindable || !maps.Equal(offsets(t, topic, c.Gone), rest) {
		t.Errorf("%+v", c)
	}
	if out := w.ok("ckpt", "list"); !strings.Contains(out, "bound, with a loss") || !strings.Contains(out, "it becomes excluded") {
		t.Error(out)
	}
	if v := dry(); v.Refused != "" || !maps.Equal(offsets(t, topic, v.Gone), rest) {
		t.Errorf("%+v", v)
	}
	if v := decoded[ckpt.Rewound](t, w.ok("rewind", "default", "--to", saved[10].Path, "--yes", "-o", "json")); !v.Rewound || !maps.Equal(offsets(t, topic, v.Gone), rest) {
		t.Errorf("%+v", v)
	}
	up.until("all that step 10 misses is excluded", func() bool { return maps.Equal(excluded(), lost) })
	if c := told(10); !*c.Rewindable || c.Gone != nil {
		t.Errorf("%+v", c)
	}
	_, _, has := w.inModel(saved[10].Path)
	restored, ids := w.trained(0)
	slices.Sort(ids)
	var want []int
	for id := range n {
		if p, o := id%partitions, int64(id/partitions); !has(p, o) && !lost[at(p, o)] {
			want = append(want, id)
		}
	}
	if restored != "10" || !slices.Equal(ids, want) {
		t.Errorf("the trainer restored step %s and got %d records, want step 10 and %d\n%s", restored, len(ids), len(want), up.err)
	}

	// Everything is settled, then the topic is deleted. Going back would still need its records.
	if err := b.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	oldest := list()[2] // three are kept, newest first
	up.until("a topic that is deleted is told", func() bool { return !*told(oldest.Step).Rewindable })
	if c := told(oldest.Step); !c.Gone.Ranges[0].Whole {
		t.Errorf("%+v", c)
	}
	if r := w.run("rewind", "default", "--to", oldest.Path, "--yes"); r.code != exitFailed || !strings.Contains(r.err, "delete dataset events") {
		t.Errorf("%+v", r)
	}
	up.stop()
	w.nothingLeft()
}

// A bit_exact dataset deals out blocks. Deleted records are named by Kafka's offsets, and the dataset
// cannot go on without them.
func TestWhatKafkaHasDeletedOfABitExactDatasetIsToldInKafkasOffsets(t *testing.T) {
	b := steadyKafka.get(t)
	const n, partitions, begins = 6000, 3, 700
	topic := newTopic(t, b, partitions, nil)
	events(t, b, topic, partitions, 0, n)
	w := newWorld(t)
	w.example(b, topic)
	text, err := os.ReadFile(w.path("events.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	spec := regexp.MustCompile(`(?m)^ *group:.*\n`).ReplaceAllString(string(text), "") // progress in blocks is no offset that a group could keep
	w.write("events.yaml", spec+"guard: {every: 200ms}\nshuffle: {seed: 7, block: 64}\nbit_exact: {virtual_ranks: 4}\n")
	up := w.up("-f", "events.yaml", "--model", "replicated")
	up.until("all is listed", func() bool {
		return decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json")).ListingComplete
	})
	want := lostAt{}
	for p := 1; p < partitions; p++ {
		if err := b.DeleteRecords(t.Context(), topic, p, begins); err != nil {
			t.Fatal(err)
		}
		for o := range int64(begins) {
			want[at(p, o)] = true
		}
	}
	var v ckpt.Rewound
	up.until("it is told", func() bool {
		v = decoded[ckpt.Rewound](t, w.ok("rewind", "default", "--to", "start", "--dry-run", "-o", "json"))
		return maps.Equal(offsets(t, topic, v.Gone), want)
	})
	if len(v.Gone.Ranges) != 2 || !strings.Contains(v.Hint, "delete bit_exact dataset events") || strings.Contains(v.Hint, "on_loss") {
		t.Errorf("%+v", v)
	}
	up.stop()
	w.nothingLeft()
}
