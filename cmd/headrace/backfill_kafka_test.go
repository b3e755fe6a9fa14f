//go:build kafka

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/ckpt"
	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/sample"
)

// A dataset whose first records lie in files, exported from a topic of two partitions: record
// id lies in partition id % 2 at offset id / 2.
const (
	backfillFiles = 4
	backfilled    = 3000
	backfillAll   = 5000
)

// history writes the export of the first records, CSV with a header line, and the spec that
// goes on in the topic behind it.
func (w *world) history(addr, more string) {
	w.t.Helper()
	for f := range backfillFiles {
		var b strings.Builder
		b.WriteString("id,x,y,user,at\n")
		for i := range backfilled / backfillFiles {
			id := f*backfilled/backfillFiles + i
			x := float64(id%1000)/500 - 1
			fmt.Fprintf(&b, "%d,%g,%g,user-%d,%d\n", id, x, 3*x-1, id%7, 1_700_000_000_000+id)
		}
		w.write(fmt.Sprintf("history/day_%d.csv", f), b.String())
	}
	text, err := os.ReadFile("../../examples/kafka/history.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	w.write("events.yaml", strings.Replace(string(text), "127.0.0.1:9092", addr, 1)+more)
}

// live produces records from..to, one by one over both partitions, a few at a time.
func live(ctx context.Context, b *testbroker.Broker, from, to int) error {
	client, done := b.Client()
	defer done()
	for ; from < to; from += 50 {
		for p := range 2 {
			var records []kafkago.Record
			for id := from + (from+p)%2; id < min(from+50, to); id += 2 {
				x := float64(id%1000)/500 - 1
				records = append(records, kafkago.Record{Key: kafkago.NewBytes(fmt.Append(nil, "user-", id%7)), Time: time.UnixMilli(int64(1_700_000_000_000 + id)),
					Value: kafkago.NewBytes(fmt.Appendf(nil, `{"id": %d, "x": %g, "y": %g}`, id, x, 3*x-1))})
			}
			if len(records) == 0 {
				continue
			}
			res, err := client.Produce(ctx, &kafkago.ProduceRequest{Topic: "events", Partition: (from + (from+p)%2) % 2, RequiredAcks: kafkago.RequireAll, Records: kafkago.NewRecordReader(records...)})
			if err == nil {
				err = res.Error
			}
			if err != nil {
				return fmt.Errorf("producing from %d: %w", from, err)
			}
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// modelOf asks the audit for the ids that are in a checkpoint's model.
func (w *world) modelOf(path string) (has func(id int) bool) {
	w.t.Helper()
	v := decoded[ckpt.Audit](w.t, w.ok("audit", path, "-o", "json"))
	lines := map[string][]int64{} // of a file: where each of its records begins
	for f := range backfillFiles {
		name := fmt.Sprintf("day_%d.csv", f)
		text, err := os.ReadFile(w.path("history", name))
		if err != nil {
			w.t.Fatal(err)
		}
		at := int64(0)
		for i, line := range strings.SplitAfter(string(text), "\n") {
			if i > 0 {
				lines[name] = append(lines[name], at)
			}
			at += int64(len(line))
		}
	}
	type interval struct{ start, end int64 }
	in := map[string][]interval{}
	for _, p := range v.Datasets[0].Partitions {
		for _, ps := range p.Passes {
			for _, r := range ps.Ranges {
				in[r.Name] = append(in[r.Name], interval{r.Start, r.End})
			}
		}
	}
	covers := func(name string, at int64) bool {
		return slices.ContainsFunc(in[name], func(r interval) bool { return r.start <= at && at < r.end })
	}
	return func(id int) bool {
		if id < backfilled {
			name := fmt.Sprintf("day_%d.csv", id/(backfilled/backfillFiles))
			return covers(name, lines[name][id%(backfilled/backfillFiles)])
		}
		return covers(fmt.Sprintf("events/%d", id%2), int64(id/2))
	}
}

func everyID(n int, but func(int) bool) (ids []int) {
	for id := range n {
		if !but(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// The history in files, then the topic, as one dataset: a live producer, a trainer that is
// killed before, in and after the transition, checkpoints on both sides of it, and restores
// across it on a master that knows nothing. Each record is in the model exactly once.
func TestADatasetReadsItsHistoryFromFilesAndGoesOnInKafka(t *testing.T) {
	b, err := testbroker.StartKafka(t.Context(), testbroker.Options{Steady: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.CreateTopic(t.Context(), "events", 2, map[string]string{"retention.ms": "-1"}); err != nil {
		t.Fatal(err)
	}
	if err := live(t.Context(), b, 0, backfilled+200); err != nil { // the files are an export of the first ones
		t.Fatal(err)
	}
	w := newWorld(t)
	w.history(b.Addr(), "")

	check := decoded[[]sample.Checked](t, w.ok("check", "-f", "events.yaml", "-o", "json"))
	if len(check) != 2 || check[0].Records != backfilled || check[1].Records != 200 || check[1].Seam == nil {
		t.Fatalf("check: %+v", check)
	}
	if text := w.ok("check", "-f", "events.yaml"); !strings.Contains(text, `"id":2999`) || !strings.Contains(text, `"id":3000`) || !strings.Contains(text, `"id":3001`) {
		t.Errorf("check does not show both sides of the transition:\n%s", text)
	}

	up := w.up("-f", "events.yaml", "--model", "replicated")
	produced := make(chan error, 1)
	go func() { produced <- live(t.Context(), b, backfilled+200, backfillAll) }()

	// 100 rows a step: the transition is after step 30. Killed before it, at it, and after it.
	for _, stop := range []struct{ at, restored int }{{13, 0}, {30, 10}, {37, 30}, {50, 35}} {
		restored, ids := w.trainedKeeping(stop.at, 20)
		if restored != fmt.Sprint(stop.restored) || len(ids) != 100*(stop.at-stop.restored) {
			t.Fatalf("a trainer restored step %s and stepped %d records up to step %d\n%s", restored, len(ids), stop.at, up.err.String())
		}
		for i, id := range ids { // the files come first
			if step := stop.restored + i/100 + 1; (id < backfilled) != (step <= backfilled/100) {
				t.Fatalf("record %d came in step %d", id, step)
			}
		}
	}
	if err := <-produced; err != nil {
		t.Fatal(err)
	}

	// Of each checkpoint the audit says which records are in it: so many, and each once.
	checkpoints := map[int64]string{}
	for _, c := range decoded[[]ckpt.View](t, w.ok("ckpt", "list", "ckpt", "-o", "json")) {
		checkpoints[c.Step] = c.Path
	}
	for _, step := range []int64{5, 30, 35, 50} {
		has := w.modelOf(checkpoints[step])
		if n := len(everyID(backfillAll, func(id int) bool { return !has(id) })); int64(n) != 100*step {
			t.Errorf("the audit of step %d counts %d records", step, n)
		}
	}
	for _, q := range []struct {
		step   int64
		record string
		in     bool
	}{
		{40, "day_0.csv/15", true}, // its first record is behind the header line
		{40, fmt.Sprintf("events/0/%d", backfilled/2), true},
		{40, fmt.Sprintf("events/1/%d", backfillAll/2-1), false},
		{50, fmt.Sprintf("events/1/%d", backfillAll/2-1), true},
	} {
		r := w.run("audit", checkpoints[q.step], "--contains", q.record, "-o", "json")
		v := decoded[ckpt.Containing](t, r.out)
		if v.In != q.in || v.Unsure || len(v.Found) != 1 {
			t.Errorf("step %d, %s: %+v %s", q.step, q.record, v, r.err)
		}
	}
	up.until("the broker is told what is in the newest checkpoint", func() bool {
		at := committed(t, b, 2)
		return at[0] == backfillAll/2 && at[1] == backfillAll/2
	})
	if out := w.ok("dataset", "describe", "events"); !strings.Contains(out, "backfill ") || !strings.Contains(out, "(100.0%)") {
		t.Errorf("describe says\n%s", out)
	}

	// A rewind to the files, and a trainer that restores it, crosses the transition again.
	before := checkpoints[25]
	w.ok("rewind", "default", "--to", before, "--yes")
	has := w.modelOf(before)
	restored, ids := w.trainedKeeping(50, 20)
	slices.Sort(ids)
	if want := everyID(backfillAll, has); !slices.Equal(ids, want) {
		t.Errorf("after a rewind to step %s %d records came, and %d are not in the checkpoint", restored, len(ids), len(want))
	}

	// A master that knows nothing restores on both sides of the transition.
	for _, step := range []int64{25, 35} {
		up.kill()
		for _, gone := range []string{w.path("state"), w.socket()} {
			if err := os.RemoveAll(gone); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range decoded[[]ckpt.View](t, w.ok("ckpt", "list", "ckpt", "-o", "json")) {
			if c.Step == step {
				checkpoints[step] = c.Path
			}
			if c.Step > step {
				if err := os.RemoveAll(filepath.Dir(c.Path)); err != nil {
					t.Fatal(err)
				}
			}
		}
		up = w.up("-f", "events.yaml", "--model", "replicated")
		has := w.modelOf(checkpoints[step])
		restored, ids := w.trainedKeeping(50, 20)
		slices.Sort(ids)
		if want := everyID(backfillAll, has); restored != fmt.Sprint(step) || !slices.Equal(ids, want) {
			t.Fatalf("restored step %s on an empty master; %d records came, and %d are not in the checkpoint\n%s", restored, len(ids), len(want), up.err.String())
		}
	}
	up.stop()
	w.nothingLeft()
}
