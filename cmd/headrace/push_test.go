package main

import (
	"context"
	varints "encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
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

// pushedTrainer starts a trainer of the dataset that connects to the agent of this machine.
func (w *world) pushedTrainer() *proc {
	program := w.self("")
	w.env = append(w.env, "HEADRACE_AGENT="+w.socket())
	return w.startProgram(program)
}

// rows writes a file with the rows from from to to-1, and returns its path.
func (w *world) rows(name string, from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintln(&b, pushedRow(i))
	}
	return w.write(name, b.String())
}

// chunks returns how many chunks the master has stored.
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
				t.Fatalf("push of part %d (again: %v) says %q, want %q, and that it is visible already only if it was pushed again", part, again > 0, out, want)
			}
		}
	}
	if d := w.ok("describe", "clicks"); !strings.Contains(d, "1,000, and going on") {
		t.Errorf("describe says\n%s\nwant 1,000 records, and going on", d)
	}
	if out := w.ok("push", "clicks", "--end", w.write("empty", "")); !strings.Contains(out, "it has ended") {
		t.Errorf("push --end says %q, want that the dataset has ended", out)
	}
	if r := trainer.wait(); !strings.Contains(r.out, sumTo(1000)) {
		t.Errorf("the trainer says %s%s, want %s", r.out, r.err, sumTo(1000))
	}
	// No chunk is left: when a file was pushed again, nothing was sent.
	up.until("chunks are deleted once they are trained on", func() bool { return w.chunks() == 0 })
	if r := w.run("push", "clicks", w.path("part-0")); r.code == 0 || !strings.Contains(r.err, "has ended") {
		t.Errorf("a push after the end: exit code %d, %s, want an error that says that the dataset has ended", r.code, r.err)
	}
	w.ok("delete", "clicks", "--yes")
	left, err := os.ReadDir(w.path("state", "headrace", "default", "landing"))
	if err != nil || len(left) > 0 {
		t.Errorf("after delete the folder landing has %v (%v), want nothing", left, err)
	}
	up.stop()
}

// check and peek work with pushed records as with those of files. They show the records that are committed and not deleted yet.
func TestPushedRecordsCanBeLookedAt(t *testing.T) {
	for _, model := range []string{"shared", "private"} {
		t.Run(model, func(t *testing.T) {
			w := newWorld(t)
			w.write("clicks.yaml", pushedSpec)
			if r := w.run("check", "-f", "clicks.yaml"); r.code == 0 || !strings.Contains(r.err, "master") {
				t.Errorf("check without a master: exit code %d, %s, want an error that says that a master is needed", r.code, r.err)
			}
			up := w.up("-f", "clicks.yaml", "--model", model)
			if out := w.ok("peek", "clicks"); !strings.Contains(out, "LABEL") && !strings.Contains(out, "label") {
				t.Errorf("before a push peek says %q, want only the columns", out)
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
				t.Errorf("check says %s, want 2,000 records and none bad: that of the uncommitted transaction is not counted", out)
			}
			if out := w.ok("peek", "clicks", "-n", "3", "--columns", "number,user", "-o", "json"); strings.Count(out, `"number"`) != 3 || !strings.Contains(out, "user-") {
				t.Errorf("peek says %s, want three records with number and user", out)
			}
			w.write("wrong.yaml", strings.Replace(pushedSpec, "path: /user, dtype: string", "path: /user, dtype: int64", 1))
			if r := w.run("check", "-f", "wrong.yaml"); r.code == 0 || !strings.Contains(r.out, "2,000 records, 2,000 bad") || !strings.Contains(r.out, "/user") {
				t.Errorf("check of a wrong spec: exit code %d, %s%s, want 2,000 bad records and the field /user", r.code, r.out, r.err)
			}
			w.write("other.yaml", strings.Replace(pushedSpec, "clicks", "nothere", 1))
			if r := w.run("check", "-f", "other.yaml"); r.code == 0 || !strings.Contains(r.err, "nothere") {
				t.Errorf("check of a dataset that is not applied: exit code %d, %s, want an error that names it", r.code, r.err)
			}
			up.stop()
		})
	}
}

// Each committed transaction is trained on once, and an uncommitted one never, no matter when the
// master is killed: before or between the chunks, before or during the commit, or after its
// answer. The producer does what every producer should: when a commit is not answered, it
// commits again.
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
		_ = os.Remove(w.path("state", "headrace", "default", "master.addr")) // the killed master has left its address, which is not valid any more
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
		if rng.IntN(3) == 0 { // a producer dies before its commit: none of its records may come
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
		commit := x.Commit // sends the last chunks and commits
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
		case 2: // the kill comes during the commit, and the answer may be lost
			answered := make(chan error, 1)
			go func() {
				_, err := commit(t.Context())
				answered <- err
			}()
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond) // kill at a random moment
			kill()
			if err := <-answered; err != nil {
				t.Fatal(err)
			}
		}
		done, err := commit(t.Context())
		if err != nil || done.Records != each || place == 2 && !done.Already {
			t.Fatalf("the commit of transaction %s: %+v, %v, want %d records", id, done, err, each)
		}
		if place == 3 {
			kill()
		}
		if again, err := commit(t.Context()); err != nil || !again.Already || again.Records != each {
			t.Fatalf("the second commit of transaction %s: %+v, %v, want %d records, committed already", id, again, err, each)
		}
	}
	if err := p.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := trainer.wait(); !strings.Contains(r.out, sumTo(transactions*each)) {
		t.Errorf("after %d kills of the master the trainer says %s%s, want %s", kills, r.out, r.err, sumTo(transactions*each))
	}
	t.Logf("the master was killed %d times", kills)
	agent.stop()
	master.stop()
}

// An agent that has not the master's state folder, as on another machine, gets the pushed records from the master.
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
		t.Errorf("the trainer says %s%s, want %s", r.out, r.err, sumTo(500))
	}
	if _, err := os.Stat(w.path("elsewhere", "landing")); err == nil {
		t.Error("the agent has made a landing folder in its own state folder, want none")
	}
	agent.stop()
	master.stop()
}

// A push without a master waits for one, and at once says that it does.
func TestAPushWithoutAMasterSaysAtOnceWhatItWaitsFor(t *testing.T) {
	w := newWorld(t)
	w.write("rows.jsonl", "{}\n")
	p := w.start("push", "clicks", "rows.jsonl", "--master", "127.0.0.1:1")
	p.until("what the push waits for", func() bool {
		return strings.Contains(p.err.String(), "no master answers at 127.0.0.1:1; waiting for it: `headrace up` starts one")
	})
	if strings.Contains(p.err.String(), "trying again") {
		t.Errorf("the push says that it tries again, want only what it waits for:\n%s", p.err)
	}
	p.signal(syscall.SIGINT)
	p.wait()
}

// Pushed records whose schema is in the spec or in a registry are decoded by check and peek as a trainer gets them.
func TestPushedRecordsWithASchemaCanBeLookedAt(t *testing.T) {
	const avro = `{"type": "record", "name": "Click", "fields": [{"name": "number", "type": "long"}]}`
	shelf := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/schemas/ids/7" {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"schema": avro})
	}))
	t.Cleanup(shelf.Close)
	for name, c := range map[string]struct {
		decode string
		record func(n int64) []byte
	}{
		"avro given":      {"format: avro, schema: {inline: '" + avro + "'}", func(n int64) []byte { return varints.AppendVarint(nil, n) }},
		"avro registered": {"format: avro, registry: {url: '" + shelf.URL + "'}", func(n int64) []byte { return varints.AppendVarint([]byte{0, 0, 0, 0, 7}, n) }},
		"protobuf given": {`format: protobuf, message: Click, schema: {inline: 'syntax = "proto3"; message Click { int64 number = 1; }'}`,
			func(n int64) []byte { return varints.AppendUvarint([]byte{1 << 3}, uint64(n)) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.write("clicks.yaml", "name: clicks\nlanding: {}\ndecode: {"+c.decode+", columns: [{name: number, path: number, dtype: int64}]}\n")
			up := w.up("-f", "clicks.yaml")
			conn, err := link.Dial(link.Target{State: w.state()}, link.TLS{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			p, err := push.Open(t.Context(), conn, "clicks")
			if err != nil {
				t.Fatal(err)
			}
			x := p.Begin("t")
			for n := range int64(100) {
				if err := x.Push(t.Context(), push.Record{Value: c.record(1000 + n)}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := x.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r := w.run("check", "-f", "clicks.yaml"); r.code != exitOK || !strings.Contains(r.out, "dataset clicks: 100 records, 0 bad") {
				t.Errorf("check: exit code %d, %s%s, want 100 records and none bad", r.code, r.out, r.err)
			}
			if r := w.run("peek", "clicks", "-n", "2", "-o", "json"); r.code != exitOK || !strings.Contains(r.out, "1000") || !strings.Contains(r.out, "1001") {
				t.Errorf("peek: exit code %d, %s%s, want records 1000 and 1001", r.code, r.out, r.err)
			}
			up.stop()
		})
	}
}
