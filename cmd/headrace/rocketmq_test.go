//go:build rocketmq

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/remoting"
)

var rocketBroker = sharedBroker[*testbroker.RocketMQ]{start: func(ctx context.Context) (*testbroker.RocketMQ, error) {
	return testbroker.StartRocketMQ(ctx, testbroker.RocketMQOptions{})
}}

// newRocketTopic makes a topic that no other test uses, and returns its name.
func newRocketTopic(t *testing.T, b *testbroker.RocketMQ, of string, queues int) string {
	t.Helper()
	name := anotherTopic(of)
	if err := b.CreateTopic(t.Context(), name, queues); err != nil {
		t.Fatal(err)
	}
	return name
}

// With `headrace run` and two trainers, each record of every queue is trained on once.
func TestRunGivesTrainersEveryMessageOfARocketMQTopicOnce(t *testing.T) {
	b := rocketBroker.get(t)
	const n, queues = 5000, 4
	topic := newRocketTopic(t, b, "clicks", queues)
	a := b.NewAppender(topic)
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
		if err := b.Reaches(t.Context(), remoting.Queue{Topic: topic, ID: queue}, end); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	w.write("clicks.yaml", strings.Replace(clicksSpec, "files: {root: data}",
		fmt.Sprintf("rocketmq: {name_servers: [%q], topic: %s, group: trainers-%s}", b.NameServer(), topic, topic), 1))
	if out := w.ok("dataset", "check", "-f", "clicks.yaml"); !strings.Contains(out, "5,000 records, 0 bad") {
		t.Errorf("check says %s, want 5,000 records and none bad", out)
	}
	out := w.ok("run", "-f", "clicks.yaml", "--nproc-per-node", "2", "--", w.self(""))
	if rows, sum := read(t, out); rows != n || sum != n*(n-1)/2 {
		t.Errorf("rows %d sum %d, want %d and %d\n%s", rows, sum, n, n*(n-1)/2, out)
	}
	w.nothingLeft()

	fiveHundredQueues(t, b)

	frozen := newWorld(t)
	frozen.silence(fmt.Sprintf("rocketmq: {name_servers: [%q], topic: %s", b.NameServer(), topic), b.Freeze, b.Thaw)
	frozen.nothingLeft()
}

// fiveHundredQueues checks that one agent reads a topic of 500 queues, each with a few records, completely and once.
func fiveHundredQueues(t *testing.T, b *testbroker.RocketMQ) {
	t.Helper()
	const queues, each, n = 500, 4, 2000
	topic := newRocketTopic(t, b, "wide", queues)
	a := b.NewAppender(topic)
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
	w.write("clicks.yaml", strings.Replace(clicksSpec, "files: {root: data}", fmt.Sprintf("rocketmq: {name_servers: [%q], topic: %s}", b.NameServer(), topic), 1))
	began := time.Now()
	out := w.ok("run", "-f", "clicks.yaml", "--", w.self(""))
	if rows, sum := read(t, out); rows != n || sum != n*(n-1)/2 {
		t.Errorf("from %d queues: rows %d sum %d, want %d and %d\n%s", queues, rows, sum, n, n*(n-1)/2, out)
	}
	t.Logf("%d queues were read in %v", queues, time.Since(began))
	w.nothingLeft()
}

func TestReadersOutliveARocketMQBrokerThatIsFrozenForLongAndKilled(t *testing.T) {
	b, err := testbroker.StartRocketMQ(t.Context(), testbroker.RocketMQOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.CreateTopic(t.Context(), "clicks", 1); err != nil {
		t.Fatal(err)
	}
	a := b.NewAppender("clicks")
	defer a.Close()
	newWorld(t).outlives(fmt.Sprintf("rocketmq: {name_servers: [%q], topic: clicks", b.NameServer()), b, func(first int) int64 {
		values := numbered(first, 64*modeBatch)
		if err := a.Append(t.Context(), 0, int64(first), values, func() {}); err != nil {
			t.Fatal(err)
		}
		return int64(len(values))
	})
}
