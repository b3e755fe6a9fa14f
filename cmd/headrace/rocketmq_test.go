//go:build rocketmq

package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/internal/view"
)

// `headrace run` reads with two trainers: each record of
// every queue is trained once.
func TestRunGivesTrainersEveryMessageOfARocketMQTopicOnce(t *testing.T) {
	b, err := testbroker.StartRocketMQ(t.Context(), testbroker.RocketMQOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const n, queues = 5000, 4
	if err := b.CreateTopic(t.Context(), "clicks", queues); err != nil {
		t.Fatal(err)
	}
	a := b.NewAppender("clicks")
	defer a.Close()
	var ends [queues]int64
	for from := 0; from < n; from += 500 {
		var values [][]byte
		for i := from; i < from+500; i++ {
			values = append(values, fmt.Appendf(nil, "%d\t%d\tuser-%d", i%2, i, i%7))
		}
		q := from / 500 % queues
		if err := a.Append(t.Context(), q, ends[q], values, func() {}); err != nil {
			t.Fatal(err)
		}
		ends[q] += 500
	}
	for queue, end := range []int64{1500, 1500, 1000, 1000} {
		if err := b.Reaches(t.Context(), remoting.Queue{Topic: "clicks", ID: queue}, end); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	w.write("clicks.yaml", strings.Replace(clicksSpec, "files: {root: data}",
		fmt.Sprintf("rocketmq: {name_servers: [%q], topic: clicks, group: trainers}", b.NameServer()), 1))
	if out := w.ok("dataset", "check", "-f", "clicks.yaml"); !strings.Contains(out, "5,000 records, 0 bad") {
		t.Errorf("check says %s", out)
	}
	out := w.ok("run", "-f", "clicks.yaml", "--nproc-per-node", "2", "--", w.self(""))
	if rows, sum := read(t, out); rows != n || sum != n*(n-1)/2 {
		t.Errorf("rows %d sum %d, want %d and %d\n%s", rows, sum, n, n*(n-1)/2, out)
	}
	w.nothingLeft()

	fiveHundredQueues(t, b)

	frozen := newWorld(t)
	frozen.silence(fmt.Sprintf("rocketmq: {name_servers: [%q], topic: clicks", b.NameServer()), b.Freeze, b.Thaw)
	frozen.nothingLeft()
}

// fiveHundredQueues of one topic have a few records each. One agent reads all of them once.
func fiveHundredQueues(t *testing.T, b *testbroker.RocketMQ) {
	t.Helper()
	const queues, each, n = 500, 4, 2000
	if err := b.CreateTopic(t.Context(), "wide", queues); err != nil {
		t.Fatal(err)
	}
	a := b.NewAppender("wide")
	defer a.Close()
	for q := range queues {
		var values [][]byte
		for i := range each {
			values = append(values, fmt.Appendf(nil, "0\t%d\tu", q*each+i))
		}
		if err := a.Append(t.Context(), q, 0, values, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	w.write("clicks.yaml", strings.Replace(clicksSpec, "files: {root: data}", fmt.Sprintf("rocketmq: {name_servers: [%q], topic: wide}", b.NameServer()), 1))
	began := time.Now()
	out := w.ok("run", "-f", "clicks.yaml", "--", w.self(""))
	if rows, sum := read(t, out); rows != n || sum != n*(n-1)/2 {
		t.Errorf("of %d queues: rows %d sum %d, want %d and %d\n%s", queues, rows, sum, n, n*(n-1)/2, out)
	}
	t.Logf("%d queues were read in %v", queues, time.Since(began))
	w.nothingLeft()
}

// A broker is frozen for longer than an agent tries to read a lease (30 s), while a trainer
// reads. status and top say since when it does not answer. Later it is killed while the reader
// waits for its answer. The trainer gets each record once.
func TestReadersOutliveARocketMQBrokerThatIsFrozenForLongAndKilled(t *testing.T) {
	b, err := testbroker.StartRocketMQ(t.Context(), testbroker.RocketMQOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const each, patience = 64 * modeBatch, 45
	if err := b.CreateTopic(t.Context(), "clicks", 1); err != nil {
		t.Fatal(err)
	}
	a := b.NewAppender("clicks")
	defer a.Close()
	n := int64(0)
	add := func() {
		t.Helper()
		var values [][]byte
		for i := range int64(each) {
			values = append(values, fmt.Appendf(nil, "0\t%d\tu", n+i))
		}
		if err := a.Append(t.Context(), 0, n, values, func() {}); err != nil {
			t.Fatal(err)
		}
		n += each
	}
	add()
	w := newWorld(t)
	w.write("clicks.yaml", strings.Replace(clicksSpec, "files: {root: data}",
		fmt.Sprintf("rocketmq: {name_servers: [%q], topic: clicks, end: never}", b.NameServer()), 1))
	up := w.up("-f", "clicks.yaml")
	trainer := w.start("run", "--max-restarts", "0", "--", w.self(""))
	status := func() view.Status { return decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json")) }
	reads := func(when string) {
		t.Helper()
		trainer.until(when, func() bool { return status().Counts.Acked == n })
		if c := status().Counts; c.Listed != n || c.Acked != n {
			t.Errorf("%s: %+v", when, c)
		}
	}
	reads("what is there is read")
	if err := b.Freeze(); err != nil {
		t.Fatal(err)
	}
	trainer.until("the silence is longer than the patience", func() bool { s := status().Silence; return s != nil && s.Seconds > patience })
	const says = "the source does not answer since "
	for _, args := range [][]string{{"status", "clicks"}, {"top", "--once"}} {
		if out := w.ok(args...); !strings.Contains(out, says) {
			t.Errorf("%v does not say it:\n%s", args, out)
		}
	}
	if err := b.Thaw(); err != nil {
		t.Fatal(err)
	}
	add()
	reads("what came after the freeze is read")
	if s := status(); s.Silence != nil || s.State != "running" {
		t.Errorf("%+v", s)
	}
	if err := errors.Join(b.Kill(), b.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	add()
	reads("what came after the kill is read")
	trainer.signal(syscall.SIGTERM)
	trainer.wait()
	up.stop()
	w.nothingLeft()
}
