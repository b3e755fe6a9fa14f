package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headrace/headrace/connectors/go/push"
	"github.com/headrace/headrace/internal/link"
)

const pushedSpec = `name: clicks
landing: {end: pushed, partitions: 3, key: /user, chunk: 1KiB, retain: 0s}
decode:
  format: json
  columns:
    - {name: label, path: /label, dtype: float32}
    - {name: number, path: /number, dtype: int64}
    - {name: user, path: /user, dtype: string}
`

func pushedRow(i int) string {
	return fmt.Sprintf(`{"label": %d, "number": %d, "user": "user-%d"}`, i%2, i, i%7)
}

// pushedTrainer starts a trainer of the dataset beside the agent of this machine.
func (w *world) pushedTrainer() *proc {
	program := w.self("")
	w.env = append(w.env, "HEADRACE_AGENT="+w.socket())
	return w.startProgram(program)
}

// rows writes a file of the rows [from, to).
func (w *world) rows(name string, from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintln(&b, pushedRow(i))
	}
	return w.write(name, b.String())
}

// chunks counts the chunks that are stored.
func (w *world) chunks() int {
	all, err := filepath.Glob(filepath.Join(w.state(), "landing", "s*", "*", "*", "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return len(all)
}

func sumTo(n int) string { return fmt.Sprintf("rows %d sum %d", n, n*(n-1)/2) }

func TestPushedRecordsAreTrainedOnOnce(t *testing.T) {
	w := newWorld(t)
	w.write("clicks.yaml", pushedSpec)
	up := w.up("-f", "clicks.yaml")
	trainer := w.pushedTrainer()
	for part := range 4 {
		file := w.rows(fmt.Sprint("part-", part), 250*part, 250*(part+1))
		for again := range 2 {
			out := w.ok("push", "clicks", file, "--transaction", fmt.Sprint("part-", part), "--rows", "100")
			if want := "250 records in 3 transactions"; !strings.Contains(out, want) || strings.Contains(out, "visible already") != (again > 0) {
				t.Fatalf("%q, want %q", out, want)
			}
		}
	}
	if d := w.ok("describe", "clicks"); !strings.Contains(d, "1,000, and going on") {
		t.Errorf("describe:\n%s", d)
	}
	if out := w.ok("push", "clicks", "--end", w.write("empty", "")); !strings.Contains(out, "it has ended") {
		t.Errorf("%q", out)
	}
	if r := trainer.wait(); !strings.Contains(r.out, sumTo(1000)) {
		t.Errorf("the trainer: %s%s, want %s", r.out, r.err, sumTo(1000))
	}
	// All of them: the second runs have sent nothing.
	up.until("chunks are deleted once they are trained on", func() bool { return w.chunks() == 0 })
	if r := w.run("push", "clicks", w.path("part-0")); r.code == 0 || !strings.Contains(r.err, "has ended") {
		t.Errorf("a push after the end: exit %d, %s", r.code, r.err)
	}
	w.ok("delete", "clicks", "--yes")
	left, err := os.ReadDir(w.path("state", "headrace", "default", "landing"))
	if err != nil || len(left) > 0 {
		t.Errorf("left after delete: %v, %v", left, err)
	}
	up.stop()
}

// People look at pushed records as at those of files: what is visible and not deleted.
func TestPushedRecordsCanBeLookedAt(t *testing.T) {
	for _, model := range []string{"shared", "private"} {
		t.Run(model, func(t *testing.T) {
			w := newWorld(t)
			w.write("clicks.yaml", pushedSpec)
			if r := w.run("check", "-f", "clicks.yaml"); r.code == 0 || !strings.Contains(r.err, "master") {
				t.Errorf("check without a master: exit %d, %s", r.code, r.err)
			}
			up := w.up("-f", "clicks.yaml", "--model", model)
			if out := w.ok("peek", "clicks"); !strings.Contains(out, "LABEL") && !strings.Contains(out, "label") {
				t.Errorf("nothing was pushed, and peek says %q", out)
			}
			w.ok("push", "clicks", w.rows("rows", 0, 2000), "--rows", "300", "--transaction", "t")
			conn, err := link.Dial(link.Target{State: w.state()}, link.TLS{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			p, err := push.Open(t.Context(), conn, "clicks")
			if err != nil {
				t.Fatal(err)
			}
			staged := p.Begin("never committed")
			if err := staged.Push(t.Context(), push.Record{Value: []byte(`{"label": "bad"}`)}); err != nil {
				t.Fatal(err)
			}
			if _, err := staged.Stage(t.Context()); err != nil {
				t.Fatal(err)
			}
			if out := w.ok("check", "-f", "clicks.yaml"); !strings.Contains(out, "dataset clicks: 2,000 records, 0 bad") {
				t.Errorf("check: %s", out)
			}
			if out := w.ok("peek", "clicks", "-n", "3", "--columns", "number,user", "-o", "json"); strings.Count(out, `"number"`) != 3 || !strings.Contains(out, "user-") {
				t.Errorf("peek: %s", out)
			}
			w.write("wrong.yaml", strings.Replace(pushedSpec, "path: /user, dtype: string", "path: /user, dtype: int64", 1))
			if r := w.run("check", "-f", "wrong.yaml"); r.code == 0 || !strings.Contains(r.out, "2,000 records, 2,000 bad") || !strings.Contains(r.out, "/user") {
				t.Errorf("check of a wrong spec: exit %d, %s%s", r.code, r.out, r.err)
			}
			w.write("other.yaml", strings.Replace(pushedSpec, "clicks", "nothere", 1))
			if r := w.run("check", "-f", "other.yaml"); r.code == 0 || !strings.Contains(r.err, "nothere") {
				t.Errorf("check of a dataset that is not applied: exit %d, %s", r.code, r.err)
			}
			up.stop()
		})
	}
}

// Each pushed transaction comes once or not at all, whenever the master is killed: before
// and between the chunks, before the commit, during it, and after its answer. The producer
// does what producers do: it tries again, and after a failure it commits again.
func TestAPushedTransactionComesOnceOrNotAtAllThroughKills(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("HEADRACE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("HEADRACE_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	w := newWorld(t)
	w.write("clicks.yaml", pushedSpec)
	master := w.master()
	w.ok("dataset", "apply", "-f", "clicks.yaml")
	agent := w.start("agent", "--name", "one", "--allow-root", w.dir)
	agent.until("trainers can come", func() bool { _, err := os.Lstat(w.socket()); return err == nil })
	trainer := w.pushedTrainer()
	conn, err := link.Dial(link.Target{State: w.state()}, link.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p, err := push.Open(t.Context(), conn, "clicks")
	if err != nil {
		t.Fatal(err)
	}
	const transactions, each = 24, 40
	kills := 0
	kill := func() {
		master.kill()
		kills++
		_ = os.Remove(w.path("state", "headrace", "default", "master.addr")) // it is left by a kill, and tells nothing
		master = w.master()
	}
	pushAll := func(x *push.Transaction, from int, at int) {
		for i := range each {
			if i == at {
				kill()
			}
			if err := x.Push(t.Context(), push.Record{Value: []byte(pushedRow(from + i))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range transactions {
		id, from, place := fmt.Sprint("t", n), n*each, rng.IntN(4)
		if rng.IntN(3) == 0 { // a producer that dies before its commit: nothing of it comes
			x := p.Begin(fmt.Sprint("lost-", n))
			pushAll(x, 1_000_000, -1)
			if _, err := x.Stage(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		x, at := p.Begin(id), -1
		if place == 0 {
			at = rng.IntN(each)
		}
		pushAll(x, from, at)
		commit := x.Commit // the last chunks and the commit in one call
		if rng.IntN(2) == 0 {
			locators, err := x.Stage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			commit = func(ctx context.Context) (push.Done, error) { return p.Commit(ctx, id, locators) }
		}
		switch place {
		case 1:
			kill()
		case 2: // in the middle of the commit, whose answer may be lost
			answered := make(chan error, 1)
			go func() {
				_, err := commit(t.Context())
				answered <- err
			}()
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond) // any moment will do
			kill()
			if err := <-answered; err != nil {
				t.Fatal(err)
			}
		}
		done, err := commit(t.Context())
		if err != nil || done.Records != each || place == 2 && !done.Already {
			t.Fatalf("transaction %s: %+v, %v", id, done, err)
		}
		if place == 3 {
			kill()
		}
		if again, err := commit(t.Context()); err != nil || !again.Already || again.Records != each {
			t.Fatalf("transaction %s again: %+v, %v", id, again, err)
		}
	}
	if err := p.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := trainer.wait(); !strings.Contains(r.out, sumTo(transactions*each)) {
		t.Errorf("the trainer, after %d kills: %s%s, want %s", kills, r.out, r.err, sumTo(transactions*each))
	}
	t.Logf("%d kills of the master", kills)
	agent.stop()
	master.stop()
}

// An agent whose state folder is another one, as on another machine, reads from the master.
func TestAnAgentElsewhereReadsPushedRecordsFromTheMaster(t *testing.T) {
	w := newWorld(t)
	w.write("clicks.yaml", pushedSpec)
	master := w.master()
	w.ok("dataset", "apply", "-f", "clicks.yaml")
	w.ok("push", "clicks", w.rows("rows", 0, 500), "--end")
	address, err := link.ReadAddress(w.state())
	if err != nil {
		t.Fatal(err)
	}
	agent := w.start("agent", "--name", "far", "--state", w.path("elsewhere"), "--master", address, "--token-file", w.path("state", "headrace", "default", "token"), "--allow-root", w.dir)
	agent.until("trainers can come", func() bool { _, err := os.Lstat(w.socket()); return err == nil })
	if r := w.pushedTrainer().wait(); !strings.Contains(r.out, sumTo(500)) {
		t.Errorf("the trainer: %s%s, want %s", r.out, r.err, sumTo(500))
	}
	if _, err := os.Stat(w.path("elsewhere", "landing")); err == nil {
		t.Error("the agent made a landing folder")
	}
	agent.stop()
	master.stop()
}

// A push without a master waits for one, and says so at once.
func TestAPushWithoutAMasterSaysAtOnceWhatItWaitsFor(t *testing.T) {
	w := newWorld(t)
	w.write("rows.jsonl", "{}\n")
	p := w.start("push", "clicks", "rows.jsonl", "--master", "127.0.0.1:1")
	p.until("the reason", func() bool {
		return strings.Contains(p.err.String(), "no master answers at 127.0.0.1:1; waiting for it: `headrace up` starts one")
	})
	if strings.Contains(p.err.String(), "trying again") {
		t.Errorf("it says first\n%s", p.err)
	}
	p.signal(syscall.SIGINT)
	p.wait()
}
