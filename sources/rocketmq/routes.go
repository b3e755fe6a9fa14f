package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
)

// route is what the name servers said of a topic last.
type route struct {
	remoting.Route
	at time.Time
}

// fetchRoute asks the name servers. Brokers that are away keep the place they had:
// name servers forget a broker as soon as it is gone.
func (s *Source) fetchRoute(ctx context.Context, topic string) (remoting.Route, error) {
	r, err := s.client.Route(ctx, topic)
	if err != nil {
		return r, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routes[topic] = &route{Route: r, at: time.Now()}
	return r, nil
}

func (s *Source) forgetRoute(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.routes[topic]; r != nil {
		r.at = time.Time{}
	}
}

// listTopic is the route of a topic whose every broker is there.
func (s *Source) listTopic(ctx context.Context, topic string) (remoting.Route, error) {
	what := "topic " + topic
	for began := time.Now(); ; {
		r, err := s.fetchRoute(ctx, topic)
		switch {
		case err == nil:
			return r, s.allThere(topic, r)
		case remoting.CodeOf(err) != remoting.TopicUnknown:
			return r, s.explain(ctx, err, what)
		}
		running, err := s.client.Brokers(ctx)
		if err != nil {
			return r, s.explain(ctx, err, what)
		}
		known := s.knownOf(topic)
		switch {
		case len(running) == 0, len(known) > 0 && !anyRuns(known, running):
			return r, temporary(fmt.Errorf("%s: no broker that has it is registered at the name servers %v", what, s.o.NameServers))
		case time.Since(began) < s.o.topicWithin: // a broker that starts is registered some seconds later
		case len(known) > 0:
			return r, deleted(known[0], sources.Range{Partition: known[0].id()})
		default:
			return r, fmt.Errorf("%s is not there on RocketMQ at %v: create it, or correct rocketmq.topic", what, s.o.NameServers)
		}
		if err := pause(ctx, retryAfter); err != nil {
			return r, err
		}
	}
}

// allThere: the spec may say which brokers there are. A name server does not tell of
// one that is down, so without that its queues would not be missed.
func (s *Source) allThere(topic string, r remoting.Route) error {
	for _, name := range s.o.Brokers {
		if _, ok := r.Broker(name); !ok {
			return temporary(fmt.Errorf("topic %s: broker %s, which rocketmq.brokers names, is not registered at the name servers: start it, or correct the spec", topic, name))
		}
	}
	return nil
}

func (s *Source) knownOf(topic string) (all []partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		if p.topic == topic {
			all = append(all, p)
		}
	}
	return all
}

func anyRuns(parts []partition, running []remoting.Broker) bool {
	return slices.ContainsFunc(parts, func(p partition) bool { return runs(p, running) })
}

// runs says whether a partition's broker is there with its master. Slaves alone do not
// count: one that has just started does not know all topics.
func runs(p partition, running []remoting.Broker) bool {
	return slices.ContainsFunc(running, func(b remoting.Broker) bool {
		return b.Name == p.broker && b.Cluster == p.cluster && len(b.Replicas) > 0 && b.Replicas[0].ID == remoting.MasterID
	})
}

func deleted(p partition, r sources.Range) error {
	return &sources.Changed{Range: r, Name: p.String(), What: fmt.Sprintf("topic %s is not on broker %s any more", p.topic, p.broker)}
}

// replicas are where a queue may be read, the master first. Without an answer from
// the name servers what they said before is believed.
func (s *Source) replicas(ctx context.Context, p partition) ([]remoting.Replica, error) {
	s.mu.Lock()
	old := s.routes[p.topic]
	s.mu.Unlock()
	if old != nil && time.Since(old.at) < routeFor {
		if all := old.of(p); all != nil {
			return all, nil
		}
	}
	r, err := s.fetchRoute(ctx, p.topic)
	if err == nil {
		if all := (&route{Route: r}).of(p); all != nil {
			return all, nil
		}
		return nil, s.notThere(ctx, p, fmt.Errorf("broker %s is not registered for it at the name servers", p.broker))
	}
	if remoting.CodeOf(err) == remoting.TopicUnknown {
		return nil, s.notThere(ctx, p, err)
	}
	if old != nil && ctx.Err() == nil {
		if all := old.of(p); all != nil {
			return all, nil
		}
	}
	return nil, s.explain(ctx, err, p.String())
}

// of gives the replicas of a queue's broker, nil if the route does not tell of the queue.
func (r *route) of(p partition) []remoting.Replica {
	has := func(q remoting.Queues) bool { return q.Broker == p.broker && q.Read > p.queue }
	b, ok := r.Broker(p.broker)
	if !ok || b.Cluster != p.cluster || !slices.ContainsFunc(r.Queues, has) {
		return nil
	}
	return b.Replicas
}

// errAway: the broker of a queue does not run, as far as the name servers know.
var errAway = errors.New("its broker is away")

// errNoTopic: the broker runs, and does not tell the name servers of the queue.
var errNoTopic = errors.New("its broker does not have it")

// notThere tells a broker that is away from a queue that is not there any more.
func (s *Source) notThere(ctx context.Context, p partition, why error) error {
	running, err := s.client.Brokers(ctx)
	if err != nil {
		return s.explain(ctx, err, p.String())
	}
	if !runs(p, running) {
		return temporary(fmt.Errorf("%s: %w: broker %s of cluster %s does not run, or is not registered at the name servers yet", p, errAway, p.broker, p.cluster))
	}
	return temporary(fmt.Errorf("%s: %w: %w", p, errNoTopic, why))
}

// master is where a queue's ends are asked for, and offsets committed. While there
// is no master it is a slave that acts as one.
func (s *Source) master(ctx context.Context, p partition) (string, error) {
	all, err := s.replicas(ctx, p)
	if err != nil {
		return "", err
	}
	if len(all) == 0 || all[0].ID != remoting.MasterID {
		return "", temporary(fmt.Errorf("%s: %w: broker %s has no master now", p, errAway, p.broker))
	}
	return all[0].Addr, nil
}
