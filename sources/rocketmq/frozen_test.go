//go:build rocketmq

package rocketmq

import (
	"testing"
	"time"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
	"github.com/headrace/headrace/sources/sourcetest"
)

// The master's process is frozen. The slave gives all messages before the name server notices it.
func TestAFrozenMasterIsReadAtItsSlave(t *testing.T) {
	b, err := testbroker.StartRocketMQ(t.Context(), testbroker.RocketMQOptions{Slave: true, Set: map[string]string{"slaveReadEnable": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const n = 5000
	topic := newTopic(t, b, 1)
	to := b.NewAppender(topic)
	defer to.Close()
	values := make([][]byte, 1000)
	for i := range values {
		values[i] = []byte("a record")
	}
	for at := int64(0); at < n; at += 1000 {
		if err := to.Append(t.Context(), 0, at, values, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	holds(t, b.RocketBroker, topic, n)
	holds(t, b.Slave(), topic, n)
	slaveKnows(t, b, topic)
	for deadline := time.Now().Add(15 * time.Minute); ; {
		o := options(b, topic)
		o.answerWithin = 2 * time.Second
		s := openFor(t, o)
		parts := asked(t, func() ([]sources.PartitionID, error) { return s.Partitions(t.Context()) })
		g := sourcetest.Segments(t, s, parts[0], 1)[0]
		r := &reading{t: t, s: s}
		frozen := false
		r.whole(sources.Range{Partition: parts[0], Segment: g.ID, Start: g.Start, End: g.End}, g.Locator, func(records int) {
			if !frozen && records > 0 {
				frozen = true
				if err := b.Freeze(); err != nil {
					t.Fatal(err)
				}
			}
		})
		route, err := b.Client().Route(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		if r.records != n || !frozen {
			t.Errorf("%d records of %d, frozen %v, opened again %d times", r.records, n, frozen, r.again)
		}
		t.Logf("opened again %d times", r.again)
		if err := b.Thaw(); err != nil {
			t.Fatal(err)
		}
		both := func(route remoting.Route) bool {
			one, is := route.Broker(b.Name())
			return is && len(one.Replicas) == 2
		}
		if both(route) {
			return
		}
		// On a very busy machine, reading everything may take two minutes. Then the name server has forgotten the master.
		if time.Now().After(deadline) {
			t.Fatalf("in each try the name server had forgotten the master before everything was read: %+v", route)
		}
		tells(t, b, topic, "the master runs again", both)
	}
}

// slaveKnows waits until the slave answers for a topic. It learns of a topic seconds later.
func slaveKnows(t *testing.T, b *testbroker.RocketMQ, topic string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		_, err := b.Client().Call(t.Context(), b.Slave().Addr(), remoting.Pull{Queue: remoting.Queue{Topic: topic}, Group: readGroup, Most: 1}.Command())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the slave does not know the topic: %v", err)
		}
		if err := brokers.Pause(t.Context(), retryAfter); err != nil {
			t.Fatal(err)
		}
	}
}
