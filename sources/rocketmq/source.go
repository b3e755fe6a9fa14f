package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/internal/wallclock"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// Source reads the topics of one dataset. Its only goroutines are those of its connections;
// they end with Close.
type Source struct {
	brokers.List[partition]
	o      Options
	client *remoting.Client
	clock  wallclock.Clock // for the forecast of deletion

	perMessage atomic.Int64   // estimated bytes of a stored message, from what was read
	window     atomic.Int64   // messages that one pull asks for, adapted by learn
	spare      brokers.Spares // memory for answers
	untold     sync.Once      // logs once that a broker does not say how far its queues are
	showed     showed
	silence    silence
	segments   brokers.Segments
	blind      sync.Once // logs once that messages cannot be compared

	comparing    sync.Mutex      // one Compare at a time
	upToDate     map[string]bool // guarded by comparing: the answers of shows in this Compare, by address
	compareAgain time.Time       // guarded by comparing: before it only queues in which something may have happened are looked at

	mu        sync.Mutex        // guards what follows
	routes    map[string]route  // by topic
	groups    map[string]bool   // brokers where shown was called; by address
	policies  map[string]policy // by cluster and broker
	stamps    map[sources.PartitionID]stamp
	missing   map[sources.PartitionID]time.Time // since when the broker runs without the queue
	histories map[sources.PartitionID]*history
	left      map[sources.PartitionID][]trace // of the last messages that closed cursors have read
	trails    map[sources.PartitionID][]trace // of messages that were read, by offset, fewer the longer ago
}

var (
	_ sources.Source    = (*Source)(nil)
	_ sources.Committer = (*Source)(nil)
	_ sources.Joiner    = (*Source)(nil)
	_ sources.Namer     = (*Source)(nil)
)

// Open makes a source. It does not connect yet.
func Open(o Options) (*Source, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Source{o: o, clock: wallclock.System(), spare: make(brokers.Spares, sparesMost),
		client: remoting.NewClient(remoting.Options{NameServers: o.NameServers, TLS: o.TLS, Credentials: o.Credentials, Answer: o.answerWithin}),
		routes: map[string]route{}, groups: map[string]bool{},
		policies: map[string]policy{}, stamps: map[sources.PartitionID]stamp{}, missing: map[sources.PartitionID]time.Time{},
		histories: map[sources.PartitionID]*history{}, left: map[sources.PartitionID][]trace{}, trails: map[sources.PartitionID][]trace{}}
	s.window.Store(windowFirst)
	for _, g := range o.Known {
		p, _, err := parseLocator(g.Locator)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(o.Topics, p.topic) {
			continue // the spec does not name it any more
		}
		s.segments.Put(p.id(), g)
		s.Put(p.id(), p)
	}
	return s, nil
}

// Close ends the connections. Cursors fail from now on.
func (s *Source) Close() error {
	s.MarkClosed()
	s.client.Close()
	return nil
}

// Partitions lists the queues of all topics, in the order of the spec, by broker and queue.
// After them it lists known queues whose brokers are away. If a topic was deleted, it
// returns a *sources.Changed error.
func (s *Source) Partitions(ctx context.Context) ([]sources.PartitionID, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	s.showed.forget()
	var ids []sources.PartitionID
	for _, topic := range s.o.Topics {
		r, err := s.listTopic(ctx, topic)
		if err != nil {
			return nil, err
		}
		parts, err := s.queuesOf(topic, r)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			s.Put(p.id(), p)
			ids = append(ids, p.id())
		}
	}
	return append(ids, s.away(ids)...), nil
}

// away returns the known partitions that no route has now.
func (s *Source) away(listed []sources.PartitionID) []sources.PartitionID {
	var ids []sources.PartitionID
	for id := range s.All() {
		if !slices.Contains(listed, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (s *Source) queuesOf(topic string, r remoting.Route) ([]partition, error) {
	var all []partition
	for _, q := range r.Queues {
		b, ok := r.Broker(q.Broker)
		if !ok {
			continue // it does not run any more
		}
		if !q.Readable() {
			return nil, fmt.Errorf("topic %s may not be read on broker %s (perm is %d): give it perm 4 or 6 (mqadmin updateTopicPerm)", topic, q.Broker, q.Perm)
		}
		for i := range q.Read {
			all = append(all, partition{b.Cluster, b.Name, topic, i})
		}
	}
	return all, nil
}

// find returns a listed partition. If it is not listed, it lists the partitions first.
func (s *Source) find(ctx context.Context, id sources.PartitionID) (partition, error) {
	return s.Find(ctx, id, s.Partitions, fmt.Sprintf("is not a queue of dataset %s, which reads topics %v", s.o.Dataset, s.o.Topics))
}

// Bounds asks each broker for all its queues at once. If a broker is away, only its own
// queues get a *sources.Temporary error.
func (s *Source) Bounds(ctx context.Context, ids []sources.PartitionID) ([]sources.Bounds, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	all := make([]sources.Bounds, len(ids))
	parts := make([]partition, len(ids))
	for i, id := range ids {
		all[i] = sources.Bounds{Partition: id, Bounded: !s.o.live()}
		parts[i], all[i].Err = s.find(ctx, id)
	}
	found := func(i int) bool { return all[i].Err == nil }
	for i, e := range s.ends(ctx, parts, found) {
		if found(i) {
			if all[i].Low.Offset, all[i].Head.Offset, all[i].Err = e.low, e.head, e.err; e.err == nil {
				s.reaches(parts[i], e.low, e.head)
			}
		}
	}
	for i, p := range parts {
		if segs := s.segments.Of(p.id()); all[i].Err == nil && len(segs) > 0 {
			all[i].Low.Segment, all[i].Head.Segment = segs[0].ID, segs[len(segs)-1].ID
		}
	}
	return all, ctx.Err()
}

// ends says where a queue begins and ends.
type ends struct {
	low, head int64
	err       error
}

// ends asks for many queues, with all requests under way together.
func (s *Source) ends(ctx context.Context, parts []partition, wanted func(int) bool) []ends {
	all := make([]ends, len(parts))
	type asked struct {
		addr      string
		low, head *remoting.Pending
	}
	under := make([]asked, len(parts))
	away := map[string]error{} // brokers that did not answer; they are not asked again
	for i, p := range parts {
		if !wanted(i) {
			continue
		}
		b := p.cluster + "/" + p.broker
		if all[i].err = away[b]; all[i].err != nil {
			continue
		}
		addr, err := s.master(ctx, p)
		if err == nil {
			under[i].addr = addr
			under[i].low, err = s.client.Start(ctx, addr, remoting.MinOffset(p.remote()))
		}
		if err == nil {
			under[i].head, err = s.client.Start(ctx, addr, remoting.MaxOffset(p.remote()))
		}
		if all[i].err = s.explain(ctx, err, p.String()); errors.Is(err, remoting.ErrUnreachable) {
			s.forgetRoute(p.topic)
			away[b] = all[i].err
		}
	}
	for i, p := range parts {
		if under[i].head == nil {
			continue
		}
		for _, one := range []struct {
			pending *remoting.Pending
			into    *int64
		}{{under[i].low, &all[i].low}, {under[i].head, &all[i].head}} {
			offset, err := s.offset(ctx, under[i].addr, one.pending)
			if *one.into = offset; err != nil {
				if errors.Is(err, remoting.ErrUnreachable) {
					s.forgetRoute(p.topic)
				}
				all[i].err = s.explain(ctx, err, p.String())
			}
		}
	}
	return all
}

// offset waits for an answer that has an offset.
func (s *Source) offset(ctx context.Context, addr string, pending *remoting.Pending) (int64, error) {
	a, err := pending.Wait(ctx, s.client.Answer())
	if err != nil {
		return 0, err
	}
	if a.Code != remoting.OK {
		return 0, &remoting.Error{Addr: addr, Code: a.Code, Remark: a.Remark}
	}
	return remoting.OffsetOf(a)
}

// endsOf is ends for one queue.
func (s *Source) endsOf(ctx context.Context, p partition) (low, head int64, err error) {
	e := s.ends(ctx, []partition{p}, func(int) bool { return true })[0]
	return e.low, e.head, e.err
}
