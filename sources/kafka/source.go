package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/internal/wallclock"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// Source reads the topics of one dataset. Its goroutines are those of kafka-go and of tails;
// they end with Close.
type Source struct {
	brokers.List[partition]
	o      Options
	client *client
	clock  wallclock.Clock // for the forecast of retention

	// perOffset is the estimated bytes of an offset, from what was read.
	perOffset atomic.Int64
	spare     brokers.Spares // memory of closed cursors
	tailWait  int32          // ms that a broker may keep a request at the head of a live partition
	tails     *tails
	epochs    *epochs
	fetches   chan struct{}                     // one item for each direct request of a live cursor
	planned   map[sources.PartitionID]partition // the partitions of o.Known
	segments  brokers.Segments

	mu      sync.Mutex // guards what follows
	cluster string
	known   map[string]topicID // by name, as first listed
	policy  map[string]policy  // by topic
}

var (
	_ sources.Source    = (*Source)(nil)
	_ sources.Committer = (*Source)(nil)
	_ sources.Joiner    = (*Source)(nil)
	_ sources.Namer     = (*Source)(nil)
	_ sources.Comparer  = (*Source)(nil)
)

// Open makes a source. It does not connect yet.
func Open(o Options) (*Source, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Source{o: o, client: newClient(&o), clock: wallclock.System(), spare: make(brokers.Spares, sparesMost), tailWait: tailWait,
		planned: map[sources.PartitionID]partition{}, known: map[string]topicID{}}
	s.tails, s.fetches, s.epochs = newTails(s.client, &s.tailWait), make(chan struct{}, fetchesMost), newEpochs()
	for _, g := range o.Known {
		p, err := parseLocator(g.Locator)
		if err != nil {
			return nil, err
		}
		s.segments.Put(p.id(), g)
		s.known[p.name], s.planned[p.id()] = p.topic, p
	}
	return s, nil
}

// Close ends the connections. Cursors fail from now on.
func (s *Source) Close() error {
	s.MarkClosed()
	s.tails.close()
	s.client.close()
	return nil
}

// Partitions lists the partitions of all topics, in the order of the spec and by number. If
// a topic was deleted and made again, it returns a *sources.Changed error: positions of the
// old topic mean nothing in the new one.
func (s *Source) Partitions(ctx context.Context) ([]sources.PartitionID, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	cluster, topics, err := s.topics(ctx)
	if err != nil {
		return nil, err
	}
	var ids []sources.PartitionID
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster = cluster
	if err := s.sameTopics(cluster, topics); err != nil {
		return nil, err
	}
	if err := s.o.offsetsThere(topics); err != nil {
		return nil, err
	}
	for _, t := range topics {
		s.known[t.name] = t.id
		slices.SortFunc(t.partitions, func(a, b partitionMeta) int { return int(a.number - b.number) })
		for _, pm := range t.partitions {
			p := partition{cluster: cluster, topic: t.id, name: t.name, number: pm.number}
			s.Put(p.id(), p)
			ids = append(ids, p.id())
		}
	}
	return ids, nil
}

// sameTopics returns an error if a topic is not the one that was known before.
func (s *Source) sameTopics(cluster string, topics []topicMeta) error {
	for _, g := range s.o.Known {
		p, err := parseLocator(g.Locator)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(topics, func(t topicMeta) bool { return t.name == p.name })
		if i < 0 {
			continue // the spec does not name it any more
		}
		if p.cluster != cluster {
			return s.otherCluster(p, cluster)
		}
		if topics[i].id != p.topic {
			return madeAgain(p, "topic "+p.name, whole(p, g), topics[i].id)
		}
	}
	for _, t := range topics {
		if old, ok := s.known[t.name]; ok && old != t.id {
			p := partition{cluster: cluster, topic: old, name: t.name}
			return madeAgain(p, "topic "+p.name, sources.Range{Partition: p.id()}, t.id)
		}
	}
	return nil
}

func whole(p partition, g sources.Segment) sources.Range {
	return sources.Range{Partition: p.id(), Segment: g.ID, Start: g.Start, End: g.End}
}

func madeAgain(p partition, name string, r sources.Range, now topicID) error {
	return &sources.Changed{Range: r, Name: name,
		What: fmt.Sprintf("the topic was deleted and made again: its id is %s, was %s", now, p.topic)}
}

func (s *Source) otherCluster(p partition, now string) error {
	return fmt.Errorf("%s: the brokers %v are of the cluster %s now, and it was planned on %s: correct kafka.brokers, apply the spec and resume the dataset, "+
		"or delete the dataset and apply it again", p, s.o.Brokers, now, p.cluster)
}

// topics asks for the spec's topics. A new topic is not known to every broker yet, so it
// asks for a missing one again until topicWithin has passed.
func (s *Source) topics(ctx context.Context) (cluster string, topics []topicMeta, err error) {
	for began := time.Now(); ; {
		if cluster, topics, err = s.client.metadata(ctx, s.o.Topics); err != nil {
			return "", nil, err
		}
		code := func(t topicMeta) bool { return t.code != codeNone }
		i := slices.IndexFunc(topics, code)
		switch {
		case i < 0 && len(topics) == len(s.o.Topics):
			return cluster, topics, nil
		case i < 0:
			return "", nil, fmt.Errorf("answer to Metadata: %d topics of %d: %w", len(topics), len(s.o.Topics), errAnswer)
		case topics[i].code != codeUnknownTopic:
			return "", nil, answered(topics[i].code, "topic "+topics[i].name)
		case time.Since(began) > topicWithin:
			if id, was := s.knownAs(topics[i].name); was {
				p := partition{cluster: cluster, topic: id, name: topics[i].name}
				return "", nil, &sources.Changed{Range: sources.Range{Partition: p.id()}, Name: "topic " + p.name, What: "the topic was deleted"}
			}
			return "", nil, fmt.Errorf("topic %s is not there, or not allowed to this user, on Kafka at %s: create it, allow it, or correct kafka.topic", topics[i].name, s.client.addr)
		}
		if err := brokers.Pause(ctx, retryAfter); err != nil {
			return "", nil, err
		}
	}
}

func (s *Source) knownAs(topic string) (topicID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, was := s.known[topic]
	return id, was
}

// find returns a listed partition. If it is not listed, it lists the partitions first.
func (s *Source) find(ctx context.Context, id sources.PartitionID) (partition, error) {
	return s.Find(ctx, id, s.Partitions, fmt.Sprintf("is not a partition of dataset %s, which reads topics %v", s.o.Dataset, s.o.Topics))
}

// Bounds returns the beginning of the log as Low and the last stable offset as Head. A live
// partition is not bounded. It sends two requests to each leader.
func (s *Source) Bounds(ctx context.Context, ids []sources.PartitionID) ([]sources.Bounds, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	all := make([]sources.Bounds, len(ids))
	var parts []partition
	var at []int
	for i, id := range ids {
		all[i] = sources.Bounds{Partition: id, Bounded: !s.o.live()}
		p, err := s.find(ctx, id)
		if err != nil {
			all[i].Err = err
			continue
		}
		parts, at = append(parts, p), append(at, i)
	}
	for _, one := range []struct {
		time int64
		set  func(b *sources.Bounds, offset int64)
	}{
		{atLogStart, func(b *sources.Bounds, o int64) { b.Low.Offset = o }},
		{atHead, func(b *sources.Bounds, o int64) { b.Head.Offset = o }},
	} {
		offsets, err := s.offsets(ctx, parts, one.time)
		if err != nil {
			return nil, err
		}
		for k, a := range offsets {
			b := &all[at[k]]
			if a.err != nil {
				b.Err = a.err
				continue
			}
			one.set(b, a.offset)
		}
	}
	for k, p := range parts {
		if segs := s.segments.Of(p.id()); len(segs) > 0 {
			all[at[k]].Low.Segment, all[at[k]].Head.Segment = segs[0].ID, segs[len(segs)-1].ID
		}
	}
	return all, nil
}

// offsets asks for the offset of one time in all parts, with one request per leader.
func (s *Source) offsets(ctx context.Context, parts []partition, time int64) ([]offsetAnswer, error) {
	times := make([]int64, len(parts))
	for i := range times {
		times[i] = time
	}
	return s.offsetsAt(ctx, parts, times)
}

// offsetsAt is offsets with a time for each part.
func (s *Source) offsetsAt(ctx context.Context, parts []partition, times []int64) ([]offsetAnswer, error) {
	all := make([]offsetAnswer, len(parts))
	if len(parts) == 0 {
		return all, nil
	}
	_, topics, err := s.topics(ctx)
	if err != nil {
		return nil, err
	}
	leads := map[int32][]int{} // leader to indexes of parts
	for i, p := range parts {
		leader := int32(-1)
		for _, t := range topics {
			for _, pm := range t.partitions {
				if t.id == p.topic && pm.number == p.number {
					leader = pm.leader
				}
			}
		}
		if leader < 0 {
			all[i].err = away(fmt.Errorf("%s has no leader now", p))
			continue
		}
		leads[leader] = append(leads[leader], i)
	}
	for leader, places := range leads {
		some, when := make([]partition, len(places)), make([]int64, len(places))
		for k, i := range places {
			some[k], when[k] = parts[i], times[i]
		}
		got, err := s.client.offsetsOf(ctx, broker(leader), some, when, committed)
		if err != nil {
			return nil, err
		}
		for k, i := range places {
			if all[i] = got[k]; got[k].err == nil && times[i] == atHead {
				s.epochs.headIs(parts[i], reached{got[k].epoch, got[k].offset})
			}
		}
	}
	return all, nil
}
