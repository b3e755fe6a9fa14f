//go:build rocketmq

package main

import (
	"fmt"
	"testing"
)

func TestRecordsOfARocketMQTopicThatAreTooOldAreExcludedAndListed(t *testing.T) {
	b := rocketBroker.get(t)
	const queues = 2
	topic := newRocketTopic(t, b, "events", queues)
	a := b.NewAppender(topic)
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
	tooOldIsLeftOut(t, fmt.Sprintf("rocketmq: {name_servers: [%q], topic: %s, start: earliest, end: never}", b.NameServer(), topic), 1000, add)
}
