//go:build rocketmq

package main

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/internal/view"
)

// A broker loses the oldest file of its commit log. With on_loss: stop (the default) the dataset
// stops, and its reason names the lost range and what can be done. With on_loss: continue exactly
// the lost range of each queue is excluded, and every other record is trained on once.
func TestWhatRocketMQLosesStopsTheDatasetOrIsExcludedExactly(t *testing.T) {
	b, err := testbroker.StartRocketMQ(t.Context(), testbroker.RocketMQOptions{Set: map[string]string{"mappedFileSizeCommitLog": "1048576", "maxMessageSize": "262144"}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const n, queues = 8000, 2
	if err := b.CreateTopic(t.Context(), "clicks", queues); err != nil {
		t.Fatal(err)
	}
	a := b.NewAppender("clicks")
	defer a.Close()
	for from := 0; from < n; from += 100 {
		var values [][]byte
		for i := from; i < from+100; i++ {
			values = append(values, fmt.Appendf(nil, "%d\t%d\tuser-%d", i%2, i, i%7))
			values[i-from] = append(values[i-from], bytes.Repeat([]byte("-"), 300)...)
		}
		q := from / 100 % queues
		if err := a.Append(t.Context(), q, int64(from/100/queues*100), values, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	for q := range queues {
		if err := b.Reaches(t.Context(), remoting.Queue{Topic: "clicks", ID: q}, n/queues); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	spec := strings.Replace(clicksSpec, "files: {root: data}", fmt.Sprintf("rocketmq: {name_servers: [%q], topic: clicks}\nguard: {every: 200ms}", b.NameServer()), 1)
	w.write("clicks.yaml", spec)
	up := w.up("-f", "clicks.yaml")
	status := func() view.Status { return decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json")) }
	up.until("all is listed", func() bool { return status().Counts.Listed == n })
	if err := b.LoseOldest(t.Context()); err != nil {
		t.Fatal(err)
	}
	var begins [queues]int64
	lost, sum := int64(0), int64(n*(n-1)/2)
	for q := range begins {
		answer, err := b.Client().Call(t.Context(), b.Addr(), remoting.MinOffset(remoting.Queue{Topic: "clicks", ID: q}))
		if err == nil {
			begins[q], err = remoting.OffsetOf(answer)
		}
		if err != nil || begins[q] == 0 || begins[q] >= n/queues {
			t.Fatalf("after the loss queue %d begins at offset %d (%v), want it to have lost some of its %d records", q, begins[q], err, n/queues)
		}
		for offset := range begins[q] {
			lost++
			sum -= (offset/100*queues+int64(q))*100 + offset%100
		}
	}

	first := w.start("run", "--max-restarts", "0", "--", w.self(""))
	first.until("the dataset stops", func() bool { return status().State == "failed" })
	first.signal(syscall.SIGTERM)
	first.wait()
	v := status()
	range0, range1 := fmt.Sprintf("[0, %d)", begins[0]), fmt.Sprintf("[0, %d)", begins[1])
	if r := v.Reason; !strings.Contains(r, "on_loss: continue") || !strings.Contains(r, "clicks/b0/") || !strings.Contains(r, range0) && !strings.Contains(r, range1) || len(v.Excluded) > 0 {
		t.Errorf("the dataset stopped with the reason %q and the excluded ranges %+v; want a reason that names a queue, its lost range and on_loss: continue, and nothing excluded", v.Reason, v.Excluded)
	}
	w.write("clicks.yaml", spec+"on_loss: continue\n")
	w.ok("dataset", "apply", "-f", "clicks.yaml")
	w.ok("dataset", "resume", "clicks")
	out := w.ok("run", "--max-restarts", "0", "--", w.self(""))
	if rows, got := read(t, out); rows != n-lost || got != sum {
		t.Errorf("%d rows with the sum %d, want %d and %d", rows, got, n-lost, sum)
	}
	v = status()
	seen := map[string]bool{}
	for _, e := range v.Excluded {
		seen[fmt.Sprintf("%s [%d, %d) %s", e.Partition, e.Start, e.End, e.Kind)] = true
	}
	for q, end := range begins {
		if want := fmt.Sprintf("rocketmq:c1/b0/clicks/%d [0, %d) truncated", q, end); !seen[want] {
			t.Errorf("%s is not among the excluded ranges %v", want, seen)
		}
	}
	if v.Counts.Excluded != lost || v.Counts.Acked != n-lost || v.State != "done" {
		t.Errorf("%d records are lost; want them excluded, all others acknowledged and the dataset done in the status %+v", lost, v)
	}
	up.stop()
	w.nothingLeft()
}

// A broker loses its last messages, as at a loss of power, when they were already trained on.
// Before we ask the broker again, producers send other messages, which get the same offsets. The
// dataset stops, with on_loss: continue too, and its reason names the queue and the offset.
func TestMessagesThatRocketMQLosesAndReplacesStopALiveDataset(t *testing.T) {
	b, err := testbroker.StartRocketMQ(t.Context(), testbroker.RocketMQOptions{Set: map[string]string{"mappedFileSizeCommitLog": "8388608"}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.CreateTopic(t.Context(), "clicks", 1); err != nil {
		t.Fatal(err)
	}
	a := b.NewAppender("clicks")
	defer a.Close()
	const each = 64 * modeBatch
	n := int64(0)
	add := func(round string) {
		t.Helper()
		var values [][]byte
		for i := range int64(each) {
			values = append(values, fmt.Appendf(nil, "0\t%d\t%s", n+i, round))
		}
		if err := a.Append(t.Context(), 0, n, values, func() {}); err != nil {
			t.Fatal(err)
		}
		n += each
	}
	w := newWorld(t)
	w.write("clicks.yaml", strings.Replace(clicksSpec, "files: {root: data}",
		fmt.Sprintf("rocketmq: {name_servers: [%q], topic: clicks, end: never}\non_loss: continue", b.NameServer()), 1))
	up := w.up("-f", "clicks.yaml")
	trainer := w.start("run", "--max-restarts", "0", "--", w.self(""))
	status := func() view.Status { return decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json")) }
	read := func() {
		t.Helper()
		trainer.until("all is read", func() bool { c := status().Counts; return c.Acked == n && c.Listed == n })
	}
	add("kept")
	read()
	lose, err := b.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		add("lost")
		read()
	}
	if err := lose(t.Context()); err != nil {
		t.Fatal(err)
	}
	n = each
	for range 5 { // more than were lost, so the queue does not become shorter
		add("others")
	}
	up.until("the dataset stops", func() bool { return status().State == "failed" })
	reason := status().Reason
	for _, word := range []string{"clicks/b0/0", "took back the records from offset", "RocketMQ: a broker that lost its last messages", "apply it again"} {
		if !strings.Contains(reason, word) {
			t.Errorf("the dataset stopped with the reason %q, which does not say %q", reason, word)
		}
	}
	t.Log(reason)
	trainer.signal(syscall.SIGTERM)
	trainer.wait()
	up.stop()
	w.nothingLeft()
}
