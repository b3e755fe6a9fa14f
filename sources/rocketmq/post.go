package rocketmq

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
)

var _ sources.Poster = (*Source)(nil)

const (
	postWithin = 30 * time.Second
	postGroup  = "headrace-dead-letters" // of producers; nothing has to be made for it
	writable   = 2                       // of a topic's permissions
)

// postQueue is a queue that takes messages.
type postQueue struct {
	remoting.Queue
	broker, addr string
}

// Post writes values to a topic of the same cluster, each with its key, one after the other.
// It returns when the brokers have them as durably as they are configured to answer. After an
// error some of them may be there.
func (s *Source) Post(ctx context.Context, topic string, keys, values [][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, postWithin)
	defer cancel()
	what := "topic " + topic + " for dead letters"
	queues, err := s.postQueues(ctx, topic, what)
	if err != nil {
		return err
	}
	for i := range values {
		h := fnv.New32a()
		_, _ = h.Write(keys[i])
		q := &queues[h.Sum32()%uint32(len(queues))]
		_, err := s.client.Call(ctx, q.addr, remoting.Send(q.Queue, q.broker, postGroup, string(keys[i]), values[i], time.Now().UnixMilli()))
		if err != nil && remoting.CodeOf(err) != remoting.NoSlave {
			return s.explain(ctx, err, what)
		}
	}
	return nil
}

func (s *Source) postQueues(ctx context.Context, topic, what string) (all []postQueue, err error) {
	r, err := s.client.Route(ctx, topic)
	if remoting.CodeOf(err) == remoting.TopicUnknown {
		return nil, fmt.Errorf("%s: %w: create it", what, err)
	}
	if err != nil {
		return nil, s.explain(ctx, err, what)
	}
	for _, q := range r.Queues {
		b, ok := r.Broker(q.Broker)
		if !ok || q.Perm&writable == 0 || len(b.Replicas) == 0 || b.Replicas[0].ID != remoting.MasterID {
			continue // a slave takes no messages
		}
		for id := range q.Write {
			all = append(all, postQueue{remoting.Queue{Topic: topic, ID: id}, q.Broker, b.Replicas[0].Addr})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no broker that is there takes messages of it: see `mqadmin topicRoute -t %s`", what, topic)
	}
	return all, nil
}
