package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// route is the newest answer of the name servers about a topic.
type route struct {
	remoting.Route
	at time.Time
}

// fetchRoute asks the name servers for the route of a topic and remembers it.
func (s *Source) fetchRoute(ctx context.Context, topic string) (remoting.Route, error) {
	r, err := s.client.Route(ctx, topic)
	if err != nil {
		return r, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routes[topic] = route{Route: r, at: time.Now()}
	return r, nil
}

func (s *Source) forgetRoute(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, known := s.routes[topic]; known {
		r.at = time.Time{}
		s.routes[topic] = r
	}
}

// listTopic returns the route of a topic when all brokers of the spec are registered. It looks
// for a missing topic for topicWithin.
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
			return r, away(fmt.Errorf("%s: no broker that has it is registered at the name servers %v", what, s.o.NameServers))
		case time.Since(began) < s.o.topicWithin: // a starting broker is registered some seconds later
		case len(known) > 0:
			return r, deleted(known[0], sources.Range{Partition: known[0].id()})
		default:
			return r, fmt.Errorf("%s is not there on RocketMQ at %v: create it, or correct rocketmq.topic", what, s.o.NameServers)
		}
		if err := brokers.Pause(ctx, retryAfter); err != nil {
			return r, err
		}
	}
}

// allThere returns an error if a broker that the spec names is not registered. A name server
// does not know brokers that are down, so without the spec's list their queues would not be
// missed.
func (s *Source) allThere(topic string, r remoting.Route) error {
	for _, name := range s.o.Brokers {
		if _, ok := r.Broker(name); !ok {
			return away(fmt.Errorf("topic %s: broker %s, which rocketmq.brokers names, is not registered at the name servers: start it, or correct the spec", topic, name))
		}
	}
	return nil
}

func (s *Source) knownOf(topic string) (all []partition) {
	for _, p := range s.All() {
		if p.topic == topic {
			all = append(all, p)
		}
	}
	return all
}

func anyRuns(parts []partition, running []remoting.Broker) bool {
	return slices.ContainsFunc(parts, func(p partition) bool { return runs(p, running) })
}

// runs says whether the master of a partition's broker is registered. Slaves alone do not
// count: a slave that has just started does not know all topics.
func runs(p partition, running []remoting.Broker) bool {
	return slices.ContainsFunc(running, func(b remoting.Broker) bool {
		return b.Name == p.broker && b.Cluster == p.cluster && len(b.Replicas) > 0 && b.Replicas[0].ID == remoting.MasterID
	})
}

func deleted(p partition, r sources.Range) error {
	return &sources.Changed{Range: r, Name: p.String(), What: fmt.Sprintf("topic %s is not on broker %s any more", p.topic, p.broker)}
}

// replicas returns the replicas of a queue, the master first. If the name servers do not
// answer, it uses their last answer.
func (s *Source) replicas(ctx context.Context, p partition) ([]remoting.Replica, error) {
	s.mu.Lock()
	old, known := s.routes[p.topic]
	s.mu.Unlock()
	if known && time.Since(old.at) < routeFor {
		if all := old.of(p); all != nil {
			return all, nil
		}
	}
	r, err := s.fetchRoute(ctx, p.topic)
	if err == nil {
		if all := (route{Route: r}).of(p); all != nil {
			return all, nil
		}
		return nil, s.notThere(ctx, p, fmt.Errorf("broker %s is not registered for it at the name servers", p.broker))
	}
	if remoting.CodeOf(err) == remoting.TopicUnknown {
		return nil, s.notThere(ctx, p, err)
	}
	if known && ctx.Err() == nil {
		if all := old.of(p); all != nil {
			return all, nil
		}
	}
	return nil, s.explain(ctx, err, p.String())
}

// of returns the replicas of a queue's broker, or nil if the route does not have the queue.
func (r route) of(p partition) []remoting.Replica {
	has := func(q remoting.Queues) bool { return q.Broker == p.broker && q.Read > p.queue }
	b, ok := r.Broker(p.broker)
	if !ok || b.Cluster != p.cluster || !slices.ContainsFunc(r.Queues, has) {
		return nil
	}
	return b.Replicas
}

// errAway means that the broker of a queue does not run, as far as the name servers know.
var errAway = errors.New("its broker is away")

// errNoTopic means that the broker runs, and has not registered the queue.
var errNoTopic = errors.New("its broker does not have it")

// notThere finds out whether a missing queue's broker is away (errAway) or does not have the
// queue any more (errNoTopic).
func (s *Source) notThere(ctx context.Context, p partition, why error) error {
	running, err := s.client.Brokers(ctx)
	if err != nil {
		return s.explain(ctx, err, p.String())
	}
	if !runs(p, running) {
		return away(fmt.Errorf("%s: %w: broker %s of cluster %s does not run, or is not registered at the name servers yet", p, errAway, p.broker, p.cluster))
	}
	return temporary(fmt.Errorf("%s: %w: %w", p, errNoTopic, why))
}

// master returns the address of a queue's master. The ends of a queue are asked for and
// offsets are committed there. A slave that acts as master counts as one.
func (s *Source) master(ctx context.Context, p partition) (string, error) {
	all, err := s.replicas(ctx, p)
	if err != nil {
		return "", err
	}
	if len(all) == 0 || all[0].ID != remoting.MasterID {
		return "", away(fmt.Errorf("%s: %w: broker %s has no master now", p, errAway, p.broker))
	}
	return all[0].Addr, nil
}
