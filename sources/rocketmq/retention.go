package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
)

// RocketMQ deletes whole files of a broker's commit log, which holds the messages of all its
// topics. Once a day, at deleteWhen, it deletes files that were last written more than
// fileReservedTime ago. While its disk is fuller than diskMaxUsedSpaceRatio, it does that at
// any hour. While the disk is fuller than diskSpaceCleanForciblyRatio, it deletes the oldest
// files whatever their age. So a message stays at least for fileReservedTime after it was
// stored, unless the disk is full. Nothing can make a broker keep more.

var _ sources.Keeper = (*Source)(nil)

// policyFor is how long a broker's configuration is used before it is asked for again.
const policyFor = time.Minute

// policy has the settings that make a broker delete messages.
type policy struct {
	age   time.Duration // fileReservedTime, or sources.Never
	full  bool          // the disk is as full as fullAt says
	blind string        // why the policy is not known; "" if it is
	at    time.Time     // when it was asked for
}

// stamp remembers when the message at an offset was stored.
type stamp struct {
	offset int64
	stored time.Time
}

// Keeps asks each broker where its queues begin and end. It also asks, once a minute, for
// the broker's configuration and disk, and, when a mark has moved, for the message at it.
func (s *Source) Keeps(ctx context.Context, marks []sources.Mark, ahead time.Duration) ([]sources.Kept, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	all := make([]sources.Kept, len(marks))
	parts := make([]partition, len(marks))
	for i, m := range marks {
		all[i] = sources.Kept{ByAge: sources.Never, Room: sources.Never, Retention: sources.Never}
		parts[i], all[i].Err = s.find(ctx, m.Partition)
	}
	found := func(i int) bool { return all[i].Err == nil }
	for i, e := range s.ends(ctx, parts, found) {
		if !found(i) {
			continue
		}
		segment := marks[i].Position.Segment
		all[i].Low, all[i].Head = sources.Position{Segment: segment, Offset: e.low}, sources.Position{Segment: segment, Offset: e.head}
		if all[i].Err = e.err; e.err == nil {
			s.reaches(parts[i], e.low, e.head)
		}
		if gone := s.gone(parts[i], e.err); gone != nil {
			all[i].Err, all[i].Gone = gone, true
		}
	}
	if ahead < 0 {
		return all, ctx.Err()
	}
	for i, m := range marks {
		if !found(i) {
			continue
		}
		all[i].Err = s.foretell(ctx, parts[i], m.Position.Offset, &all[i])
	}
	return all, ctx.Err()
}

// foretell fills in how far the message at an offset is from its deletion.
func (s *Source) foretell(ctx context.Context, p partition, offset int64, x *sources.Kept) error {
	q, err := s.policyOf(ctx, p)
	if err != nil {
		return err
	}
	if x.Retention, x.Blind = q.age, q.blind; q.full {
		x.Room = -1
	}
	if x.ByAge = q.age; q.age == sources.Never || offset >= x.Head.Offset {
		return nil
	}
	at, err := s.storedAt(ctx, p, max(offset, x.Low.Offset))
	if err != nil {
		return err
	}
	x.ByAge = max(0, q.age-s.clock.Latest().Sub(at))
	return nil
}

// gone returns an error if the queue's broker has been running without the queue for
// topicWithin.
func (s *Source) gone(p partition, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(err, errNoTopic) {
		delete(s.missing, p.id())
		return nil
	}
	since, was := s.missing[p.id()]
	if !was {
		since = time.Now()
		s.missing[p.id()] = since
	}
	if time.Since(since) < s.o.topicWithin {
		return nil
	}
	return deleted(p, sources.Range{Partition: p.id()})
}

// storedAt returns when the message at an offset was stored.
func (s *Source) storedAt(ctx context.Context, p partition, offset int64) (time.Time, error) {
	s.mu.Lock()
	known, is := s.stamps[p.id()]
	s.mu.Unlock()
	if is && known.offset == offset {
		return known.stored, nil
	}
	m, _, err := s.one(ctx, p, offset)
	if err != nil {
		return time.Time{}, err
	}
	at := time.UnixMilli(m.stored)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stamps[p.id()] = stamp{offset, at}
	return at, nil
}

// policyOf returns the policy of a queue's broker. If the user may not ask for it,
// policy.blind says so, and there is no error.
func (s *Source) policyOf(ctx context.Context, p partition) (policy, error) {
	name := p.cluster + "/" + p.broker
	s.mu.Lock()
	known, is := s.policies[name]
	s.mu.Unlock()
	if is && time.Since(known.at) < policyFor {
		return known, nil
	}
	addr, err := s.master(ctx, p)
	if err != nil {
		return policy{}, err
	}
	q := policy{age: sources.Never, at: time.Now()}
	config, err := s.client.Config(ctx, addr)
	if err == nil {
		err = q.read(ctx, s.client, addr, config)
	}
	switch {
	case remoting.CodeOf(err) >= 0:
		q.blind = fmt.Sprintf("broker %s does not tell this user its configuration, so deletion is not foreseen: %v", p.broker, err)
	case err != nil:
		return q, s.explain(ctx, err, "the configuration of broker "+p.broker)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policies[name] = q
	return q, nil
}

func (q *policy) read(ctx context.Context, c *remoting.Client, addr string, config map[string]string) error {
	hours, err := strconv.ParseInt(config["fileReservedTime"], 10, 32)
	if err != nil || hours < 0 {
		q.blind = fmt.Sprintf("the broker's fileReservedTime is %q, so deletion is not foreseen", config["fileReservedTime"])
		return nil
	}
	q.age = time.Duration(hours) * time.Hour
	most, known := fullAt(config)
	if !known {
		return nil // only the age counts
	}
	state, err := c.Runtime(ctx, addr)
	if err != nil {
		return err
	}
	for _, name := range []string{"commitLogDiskRatio", "consumeQueueDiskRatio"} {
		if used, err := strconv.ParseFloat(state[name], 64); err == nil && used*100 >= most {
			q.full = true
		}
	}
	return nil
}

// fullAt returns the lowest of the three ratios, in percent, from which on a broker cleans up
// because its disk is full. known is false if the configuration has none of them. Above the
// second or the third, a broker deletes files of any age. It keeps each ratio within limits,
// whatever is configured. An older broker does not name the second one, and uses 85.
func fullAt(config map[string]string) (most float64, known bool) {
	most = 85
	for _, ratio := range []struct {
		name        string
		least, most float64
	}{
		{"diskMaxUsedSpaceRatio", 10, 95},
		{"diskSpaceCleanForciblyRatio", 30, 85},
		{"diskSpaceWarningLevelRatio", 35, 90},
	} {
		if n, err := strconv.ParseFloat(config[ratio.name], 64); err == nil {
			most, known = min(most, max(n, ratio.least), ratio.most), true
		}
	}
	return most, known
}
