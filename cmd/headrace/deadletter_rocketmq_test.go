//go:build rocketmq

package main

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/internal/remoting"
)

func TestBadMessagesOfARocketMQTopicGoToATopic(t *testing.T) {
	b := rocketBroker.get(t)
	topic, letters := newRocketTopic(t, b, "clicks", 2), newRocketTopic(t, b, "letters", 2)
	values, bad, sum, good := badMessages(1000)
	a := b.NewAppender(topic)
	defer a.Close()
	for queue := range 2 {
		if err := a.Append(t.Context(), queue, 0, values[500*queue:500*(queue+1)], func() {}); err != nil {
			t.Fatal(err)
		}
		if err := b.Reaches(t.Context(), remoting.Queue{Topic: topic, ID: queue}, 500); err != nil {
			t.Fatal(err)
		}
	}
	lettersGoToATopic(t, topic, letters, func(topic string) string {
		return fmt.Sprintf("rocketmq: {name_servers: [%q], topic: %s}", b.NameServer(), topic)
	}, bad, sum, good)
}
