package rocketmq

import (
	"errors"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// A slave copies the list of topics every ten seconds. Before that it answers for a new
// topic as for one that was deleted. Only a master's word stops a dataset.
func TestASlaveThatDoesNotKnowATopicYetIsNoTopicThatWasDeleted(t *testing.T) {
	s, err := Open(Options{Dataset: "d", NameServers: []string{"127.0.0.1:1"}, Topics: []string{"t"}, MaxRecord: 1,
		Start: End{At: brokers.Earliest}, End: End{At: brokers.Latest}, topicWithin: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, code := range []int{remoting.TopicUnknown, remoting.QueueUnknown} {
		for id, gone := range map[int64]bool{remoting.MasterID: true, 1: false} {
			c := &cursor{s: s, p: partition{"c", "b", "t", 0}, r: sources.Range{End: 10}, replica: remoting.Replica{ID: id, Addr: "127.0.0.1:2"}, wrong: time.Unix(1, 0)}
			err := c.answer(t.Context(), &pull{end: 10}, &remoting.Pulled{Code: code})
			_, changed := errors.AsType[*sources.Changed](err)
			_, again := errors.AsType[*sources.Temporary](err)
			if changed != gone || again == gone {
				t.Errorf("code %d of replica %d: %v", code, id, err)
			}
		}
	}
}

func TestABrokerWithoutItsMasterIsAwayAndItsTopicsAreNotGone(t *testing.T) {
	p := partition{"c", "b", "t", 0}
	slave, master := remoting.Replica{ID: 1, Addr: "s"}, remoting.Replica{ID: remoting.MasterID, Addr: "m"}
	for _, c := range []struct {
		broker remoting.Broker
		runs   bool
	}{
		{remoting.Broker{Cluster: "c", Name: "b", Replicas: []remoting.Replica{master, slave}}, true},
		{remoting.Broker{Cluster: "c", Name: "b", Replicas: []remoting.Replica{slave}}, false},
		{remoting.Broker{Cluster: "c", Name: "b"}, false},
		{remoting.Broker{Cluster: "other", Name: "b", Replicas: []remoting.Replica{master}}, false},
	} {
		if got := runs(p, []remoting.Broker{c.broker}); got != c.runs {
			t.Errorf("%+v: %v", c.broker, got)
		}
	}
}
