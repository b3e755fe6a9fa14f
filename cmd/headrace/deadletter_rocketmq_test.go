//go:build rocketmq

package main

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/remoting"
)

func TestBadMessagesOfARocketMQTopicGoToATopic(t *testing.T) {
	b, err := testbroker.StartRocketMQ(t.Context(), testbroker.RocketMQOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, topic := range []string{"clicks", "clicks-bad"} {
		if err := b.CreateTopic(t.Context(), topic, 2); err != nil {
			t.Fatal(err)
		}
	}
	values, bad, sum, good := badMessages(1000)
	a := b.NewAppender("clicks")
	defer a.Close()
	for queue := range 2 {
		if err := a.Append(t.Context(), queue, 0, values[500*queue:500*(queue+1)], func() {}); err != nil {
			t.Fatal(err)
		}
		if err := b.Reaches(t.Context(), remoting.Queue{Topic: "clicks", ID: queue}, 500); err != nil {
			t.Fatal(err)
		}
	}
	lettersGoToATopic(t, func(topic string) string {
		return fmt.Sprintf("rocketmq: {name_servers: [%q], topic: %s}", b.NameServer(), topic)
	}, bad, sum, good)
}
