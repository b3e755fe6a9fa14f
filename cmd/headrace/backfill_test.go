package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headrace/headrace/connectors/go/push"
	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/ckpt"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/sample"
)

// The dataset of these tests begins with files. They are an export of the first records of a live
// source with two partitions. Record id is in partition id % 2, with id / 2 records before it.
const (
	backfillFiles = 4
	backfilled    = 3000
	backfillAll   = 5000
	backfillBatch = 70 // records that are written together, half of them to each partition
)

// liveSource is the source in which a dataset goes on after its files.
type liveSource struct {
	// part returns the source's part of the spec. It begins with the first record that is not in the files.
	part func() string
	// pushed: the source needs a master with the dataset before it takes a record.
	pushed bool
	// again is called after the start of a master without state; nil: the source needs no call.
	again func()
	// lost: the pushed records are lost together with the master's state.
	lost bool
	// write adds records to a partition that has `before` records already.
	write func(partition, before int, values [][]byte) error
	// place returns where a record lies, in an audit's words. Segment -1: any segment of that name.
	place func(id int) (name string, segment, offset int64)
	// restart kills the broker and starts it again; nil: there is no broker but the master.
	restart func() error
	// told returns whether the broker has the progress up to the last record; nil: it keeps no progress.
	told func() bool

	writing sync.Mutex // only one goroutine writes at a time
}

// eventOf is a record with the columns of examples/kafka/history.yaml.
func eventOf(id int) []byte {
	x := float64(id%1000)/500 - 1
	return fmt.Appendf(nil, `{"id": %d, "x": %g, "y": %g, "user": "user-%d", "at": %d}`, id, x, 3*x-1, id%7, 1_700_000_000_000+id)
}

// produce writes the records [from, to), each once.
func (l *liveSource) produce(from, to int) error {
	for ; from < to; from += backfillBatch {
		for p := range 2 {
			var values [][]byte
			for id := from + p; id < min(from+backfillBatch, to); id += 2 {
				values = append(values, eventOf(id))
			}
			l.writing.Lock()
			err := l.write(p, from/2, values)
			l.writing.Unlock()
			if err != nil {
				return fmt.Errorf("writing from record %d: %w", from+p, err)
			}
		}
	}
	return nil
}

// historySpec returns examples/kafka/history.yaml with another live source. The records of that source
// have no keys and no times.
func historySpec(t *testing.T, part string) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/kafka/history.yaml")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "\nkafka:\n")
	_, decode, found := strings.Cut(rest, "\ndecode:\n")
	if !ok || !found {
		t.Fatalf("examples/kafka/history.yaml does not have the form that this test expects: %s", text)
	}
	decode = strings.NewReplacer("$key", "/user", "$timestamp", "/at").Replace(decode)
	return before + "\n" + part + "\ndecode:\n" + decode
}

// history writes the export of the first records, CSV with a header line.
func (w *world) history() {
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
}

// modelOf asks the audit which ids are in a checkpoint's model.
func (w *world) modelOf(path string, l *liveSource) (has func(id int) bool) {
	w.t.Helper()
	v := decoded[ckpt.Audit](w.t, w.ok("audit", path, "-o", "json"))
	lines := map[string][]int64{} // by file: where each of its records begins
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
	in := map[string][]audit.Range{}
	for _, p := range v.Datasets[0].Partitions {
		for _, ps := range p.Passes {
			for _, r := range ps.Ranges {
				in[r.Name] = append(in[r.Name], r)
			}
		}
	}
	covers := func(name string, segment, at int64) bool {
		return slices.ContainsFunc(in[name], func(r audit.Range) bool {
			return (segment < 0 || r.Segment == segment) && r.Start <= at && at < r.End
		})
	}
	return func(id int) bool {
		if id < backfilled {
			name := fmt.Sprintf("day_%d.csv", id/(backfilled/backfillFiles))
			return covers(name, -1, lines[name][id%(backfilled/backfillFiles)])
		}
		return covers(l.place(id))
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

// readsFilesAndGoesOn reads the history in files, then the live source, as one dataset. Meanwhile a
// producer writes. The trainer is killed before, at and after the transition, the broker and the master
// at the transition. There are checkpoints on both sides, a rewind across the transition, and restores
// on a master without state. Each record is in the model exactly once.
func (w *world) readsFilesAndGoesOn(l *liveSource) {
	t := w.t
	w.history()
	written := 0 // records that the live source has before the dataset is applied
	if l.pushed {
		written = backfilled
	} else if err := l.produce(0, backfilled+200); err != nil { // the files are an export of the first of them
		t.Fatal(err)
	}
	w.write("events.yaml", l.part())
	up := w.up("-f", "events.yaml", "--model", "replicated")
	if l.pushed {
		if err := l.produce(written, backfilled+200); err != nil {
			t.Fatal(err)
		}
	}
	check := decoded[[]sample.Checked](t, w.ok("check", "-f", "events.yaml", "-o", "json"))
	if len(check) != 2 || check[0].Records != backfilled || check[1].Records != 200 || check[1].Seam == nil {
		t.Fatalf("check says %+v, want %d records in the files, 200 in the source, and the transition", check, backfilled)
	}
	if text := w.ok("check", "-f", "events.yaml"); !strings.Contains(text, `"id":2999`) || !strings.Contains(text, `"id":3000`) || !l.pushed && !strings.Contains(text, `"id":3001`) {
		t.Errorf("check does not show both sides of the transition:\n%s", text)
	}

	produced := make(chan error, 1)
	go func() { produced <- l.produce(backfilled+200, backfillAll) }()

	// A step has 100 rows, so the transition is after step 30. The trainer is killed before, at and after it.
	for _, stop := range []struct{ at, restored int }{{13, 0}, {30, 10}, {37, 30}, {50, 35}} {
		restored, ids := w.trainedKeeping(stop.at, 20)
		if restored != fmt.Sprint(stop.restored) || len(ids) != 100*(stop.at-stop.restored) {
			t.Fatalf("the trainer restored step %s and stepped %d records up to step %d; want step %d and %d records\n%s", restored, len(ids), stop.at, stop.restored, 100*(stop.at-stop.restored), up.err.String())
		}
		for i, id := range ids { // the files come first
			if step := stop.restored + i/100 + 1; (id < backfilled) != (step <= backfilled/100) {
				t.Fatalf("record %d came in step %d, want all %d records of the files before the others", id, step, backfilled)
			}
		}
		if stop.at == backfilled/100 {
			up.kill()
			if l.restart != nil {
				l.writing.Lock()
				err := l.restart()
				l.writing.Unlock()
				if err != nil {
					t.Fatal(err)
				}
			}
			up = w.up("--model", "replicated")
		}
	}
	if err := <-produced; err != nil {
		t.Fatal(err)
	}

	// The audit of each checkpoint counts the records that were stepped.
	checkpoints := map[int64]string{}
	for _, c := range decoded[[]ckpt.View](t, w.ok("ckpt", "list", "ckpt", "-o", "json")) {
		checkpoints[c.Step] = c.Path
	}
	for _, step := range []int64{5, 30, 35, 50} {
		has := w.modelOf(checkpoints[step], l)
		if n := len(everyID(backfillAll, func(id int) bool { return !has(id) })); int64(n) != 100*step {
			t.Errorf("the audit of step %d counts %d records, want %d", step, n, 100*step)
		}
	}
	record := func(id int) string {
		name, _, offset := l.place(id)
		return fmt.Sprintf("%s/%d", name, offset)
	}
	for _, q := range []struct {
		step   int64
		record string
		in     bool
	}{
		{40, "day_0.csv/15", true}, // the first record, after the header line
		{50, record(backfilled), true},
		{50, record(backfillAll - 1), true},
		{30, record(backfilled), false},
	} {
		r := w.run("audit", checkpoints[q.step], "--contains", q.record, "-o", "json")
		if !q.in && strings.Contains(r.err, "knows nothing called") { // the checkpoint cannot know a chunk that was pushed later
			continue
		}
		v := decoded[ckpt.Containing](t, r.out)
		if v.In != q.in || v.Unsure || q.in && len(v.Found) != 1 {
			t.Errorf("the audit of step %d says of %s: %+v %s; want in the model: %v", q.step, q.record, v, r.err, q.in)
		}
	}
	if l.told != nil {
		up.until("the broker is told what is in the newest checkpoint", l.told)
	}
	if out := w.ok("dataset", "describe", "events"); !strings.Contains(out, "backfill ") || !strings.Contains(out, "(100.0%)") {
		t.Errorf("describe says\n%s", out)
	}

	// After a rewind to step 25, in the files, a trainer crosses the transition again.
	before := checkpoints[25]
	w.ok("rewind", "default", "--to", before, "--yes")
	has := w.modelOf(before, l)
	restored, ids := w.trainedKeeping(50, 20)
	slices.Sort(ids)
	if want := everyID(backfillAll, has); !slices.Equal(ids, want) {
		t.Errorf("after the rewind the trainer restored step %s and got %d records, want the %d that are not in the checkpoint", restored, len(ids), len(want))
	}

	if l.lost {
		up = w.pushesAgain(l, up)
		up.stop()
		w.nothingLeft()
		return
	}
	// A master without state restores checkpoints from both sides of the transition.
	for _, step := range []int64{25, 35} {
		up.kill()
		w.forget()
		checkpoints[step] = w.checkpointsUpTo(step)
		up = w.up("-f", "events.yaml", "--model", "replicated")
		has := w.modelOf(checkpoints[step], l)
		restored, ids := w.trainedKeeping(50, 20)
		slices.Sort(ids)
		if want := everyID(backfillAll, has); restored != fmt.Sprint(step) || !slices.Equal(ids, want) {
			t.Fatalf("on a master without state the trainer restored step %s and got %d records; want step %d and the %d that are not in the checkpoint\n%s", restored, len(ids), step, len(want), up.err.String())
		}
	}
	up.stop()
	w.nothingLeft()
}

// checkpointsUpTo removes the checkpoints after a step, and returns the path of that step's checkpoint.
func (w *world) checkpointsUpTo(step int64) (path string) {
	w.t.Helper()
	for _, c := range decoded[[]ckpt.View](w.t, w.ok("ckpt", "list", "ckpt", "-o", "json")) {
		if c.Step == step {
			path = c.Path
		}
		if c.Step > step {
			if err := os.RemoveAll(filepath.Dir(c.Path)); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return path
}

// pushesAgain: a master loses its state, first without its landing folder, then with it. A trainer that
// restores a checkpoint from before the transition is told at once what is lost. With on_loss: continue
// it reads the rest of the files, and the records that are pushed again.
func (w *world) pushesAgain(l *liveSource, up *proc) *proc {
	t := w.t
	stops := l.part()
	goesOn := stops + "\non_loss: continue\n"
	for _, c := range []struct{ lost, says string }{
		{"its store", "the master has lost its state, and only that said which pushed records were visible"},
		{"its whole state folder", "the pushed records of partition events/0"},
	} {
		up.kill()
		w.forget()
		if c.lost != "its store" {
			if err := os.RemoveAll(filepath.Join(w.state(), "landing")); err != nil {
				t.Fatal(err)
			}
		}
		path := w.checkpointsUpTo(25)
		w.write("events.yaml", stops)
		up = w.up("-f", "events.yaml", "--model", "replicated")
		if r := w.modelTrainer(0, "newest", 20); r.code == 0 || !strings.Contains(r.err, c.says) || !strings.Contains(r.err, "on_loss: continue") || !strings.Contains(r.err, "pushed again") && !strings.Contains(r.err, "push the others again") {
			t.Fatalf("the master has lost %s, and the trainer ended with exit code %d and\n%s\nwant %q and what to do", c.lost, r.code, r.err, c.says)
		}
		w.write("events.yaml", goesOn)
		w.ok("dataset", "apply", "-f", "events.yaml")
		w.ok("dataset", "resume", "events")
		l.again()
		pushed := make(chan error, 1)
		go func() { pushed <- l.produce(backfilled, backfillAll) }()
		restored, ids := w.trainedKeeping(50, 20)
		if err := <-pushed; err != nil {
			t.Fatal(err)
		}
		has := func(id int) bool { return id < 2500 } // one trainer has read the files in order, 25 steps of 100
		slices.Sort(ids)
		if want := everyID(backfillAll, has); restored != "25" || !slices.Equal(ids, want) {
			t.Fatalf("the master has lost %s: the trainer restored step %s of %s and got %d records; want step 25 and the %d that are not in the checkpoint\n%s", c.lost, restored, path, len(ids), len(want), up.err.String())
		}
	}
	return up
}

// forget removes the state of a master, but not the pushed records, which lie in its state folder or in
// a bucket.
func (w *world) forget() {
	w.t.Helper()
	all, err := os.ReadDir(w.state())
	if err != nil {
		w.t.Fatal(err)
	}
	gone := []string{w.socket()}
	for _, f := range all {
		if f.Name() != "landing" {
			gone = append(gone, filepath.Join(w.state(), f.Name()))
		}
	}
	for _, path := range gone {
		if err := os.RemoveAll(path); err != nil {
			w.t.Fatal(err)
		}
	}
}

// pushedEvents is the source landing: each write is a transaction of one chunk.
type pushedEvents struct {
	w      *world
	pusher *push.Pusher
	place  map[int]audit.Range // by id: where the record lies
}

func (e *pushedEvents) write(partition, before int, values [][]byte) error {
	ctx, cancel := context.WithTimeout(e.w.t.Context(), long)
	defer cancel()
	if e.pusher == nil {
		conn, err := link.Dial(link.Target{State: e.w.state()}, link.TLS{})
		if err != nil {
			return err
		}
		e.w.t.Cleanup(func() { _ = conn.Close() })
		if e.pusher, err = push.Open(ctx, conn, "events"); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("%d/%d", partition, before)
	x := e.pusher.Begin(name)
	for _, v := range values {
		if err := x.Push(ctx, push.Record{Value: v}); err != nil {
			return err
		}
	}
	locators, err := x.Stage(ctx)
	if err != nil {
		return err
	}
	if len(locators) != 1 {
		return fmt.Errorf("transaction %s has %d chunks", name, len(locators))
	}
	_, key, err := chunk.ParseLocator(locators[0])
	if err != nil {
		return err
	}
	for i := range values {
		e.place[2*before+partition+2*i] = audit.Range{Name: key.Name(), Segment: -1, Start: int64(i)}
	}
	done, err := e.pusher.Commit(ctx, name, locators)
	if err == nil && done.Records != int64(len(values)) {
		err = errors.New("not all records were committed")
	}
	return err
}

func TestADatasetReadsItsHistoryFromFilesAndGoesOnInPushedRecords(t *testing.T) {
	newWorld(t).readsFilesAndGoesOnInPushedRecords(true)
}

func (w *world) readsFilesAndGoesOnInPushedRecords(lost bool) {
	t := w.t
	e := &pushedEvents{w: w, place: map[int]audit.Range{}}
	w.readsFilesAndGoesOn(&liveSource{
		part:   func() string { return historySpec(t, "landing: {}") },
		pushed: true,
		lost:   lost,
		again:  func() { e.pusher = nil },
		write:  e.write,
		place: func(id int) (string, int64, int64) {
			r := e.place[id]
			return r.Name, r.Segment, r.Start
		},
	})
}
