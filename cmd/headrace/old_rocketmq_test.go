//go:build rocketmq

package main

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

func TestRecordsOfARocketMQTopicThatAreTooOldAreExcludedAndListed(t *testing.T) {
	b, err := testbroker.StartRocketMQ(t.Context(), testbroker.RocketMQOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const queues = 2
	if err := b.CreateTopic(t.Context(), "events", queues); err != nil {
		t.Fatal(err)
	}
	a := b.NewAppender("events")
	defer a.Close()
	var ends [queues]int64
	turn := 0
	add := func(ids []int) {
		t.Helper()
		for from := 0; from < len(ids); from += 100 {
			if err := a.Append(t.Context(), turn, ends[turn], jsonOf(ids[from:from+100]), func() {}); err != nil {
				t.Fatal(err)
			}
			ends[turn] += 100
			turn = (turn + 1) % queues
		}
	}
	tooOldIsLeftOut(t, fmt.Sprintf("rocketmq: {name_servers: [%q], topic: events, start: earliest, end: never}", b.NameServer()), 1000, add)
}
