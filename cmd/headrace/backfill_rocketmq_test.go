//go:build rocketmq

package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/remoting"
)

func TestADatasetReadsItsHistoryFromFilesAndGoesOnInRocketMQ(t *testing.T) {
	b, err := testbroker.StartRocketMQ(t.Context(), testbroker.RocketMQOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.CreateTopic(t.Context(), "events", 2); err != nil {
		t.Fatal(err)
	}
	a := b.NewAppender("events")
	defer a.Close()
	newWorld(t).readsFilesAndGoesOn(&liveSource{
		part: func() string {
			return historySpec(t, fmt.Sprintf("rocketmq: {name_servers: [%q], topic: events, end: never, group: trainers, start_offsets: {0: %d, 1: %d}}",
				b.NameServer(), backfilled/2, backfilled/2))
		},
		write: func(queue, before int, values [][]byte) error {
			err := a.Append(t.Context(), queue, int64(before), values, func() {})
			if err == nil {
				err = b.Reaches(t.Context(), remoting.Queue{Topic: "events", ID: queue}, int64(before+len(values)))
			}
			return err
		},
		place: func(id int) (string, int64, int64) {
			return fmt.Sprintf("events/%s/%d", b.Name(), id%2), -1, int64(id / 2)
		},
		restart: func() error { return errors.Join(b.Kill(), b.Start(t.Context())) },
		told: func() bool {
			for queue := range 2 {
				answer, err := b.Client().Call(t.Context(), b.Addr(), remoting.QueryOffset(remoting.Queue{Topic: "events", ID: queue}, "trainers"))
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
