//go:build rocketmq

package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headrace/headrace/internal/remoting"
)

func TestADatasetReadsItsHistoryFromFilesAndGoesOnInRocketMQ(t *testing.T) {
	b := rocketBroker.get(t)
	topic := newRocketTopic(t, b, "events", 2)
	group := "trainers-" + topic
	a := b.NewAppender(topic)
	defer a.Close()
	newWorld(t).readsFilesAndGoesOn(&liveSource{
		part: func() string {
			return historySpec(t, fmt.Sprintf("rocketmq: {name_servers: [%q], topic: %s, end: never, group: %s, start_offsets: {0: %d, 1: %d}}",
				b.NameServer(), topic, group, backfilled/2, backfilled/2))
		},
		write: func(queue, before int, values [][]byte) error {
			err := a.Append(t.Context(), queue, int64(before), values, func() {})
			if err == nil {
				err = b.Reaches(t.Context(), remoting.Queue{Topic: topic, ID: queue}, int64(before+len(values)))
			}
			return err
		},
		place: func(id int) (string, int64, int64) {
			return fmt.Sprintf("%s/%s/%d", topic, b.Name(), id%2), -1, int64(id / 2)
		},
		restart: func() error { return errors.Join(b.Kill(), b.Start(t.Context())) },
		told: func() bool {
			for queue := range 2 {
				answer, err := b.Client().Call(t.Context(), b.Addr(), remoting.QueryOffset(remoting.Queue{Topic: topic, ID: queue}, group))
				if err != nil {
					if remoting.CodeOf(err) == remoting.NoOffset {
						return false
					}
					t.Fatal(err)
				}
				at, err := remoting.OffsetOf(answer)
				if err != nil {
					t.Fatal(err)
				}
				if at != backfillAll/2 {
					return false
				}
			}
			return true
		},
	})
}
