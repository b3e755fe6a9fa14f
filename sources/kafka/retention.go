package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/sources"
)

// Kafka deletes whole log files from the beginning of a partition: those whose newest
// record is older than retention.ms, and those without which the partition still has
// retention.bytes. So a record stays while one of these is true:
//
//   - by age: the record, or any record before it, is younger than retention.ms;
//   - by size: the record and all after it have no more than retention.bytes.
//
// The forecast by age may be too early and is never too late. The forecast by size uses the
// mean size of the present records.

var _ sources.Keeper = (*Source)(nil)

// policyFor is how long a topic's configuration is used before it is asked for again.
const policyFor = time.Minute

// policy is what makes Kafka delete records of one topic.
type policy struct {
	age      time.Duration // retention.ms, or sources.Never
	bytes    int64         // retention.bytes, or sources.Never
	blind    string        // why the policy is not known; "" if it is
	untold   bool          // the policy is not known
	compacts bool          // Kafka may delete single records and keep those around them
	at       time.Time     // when it was asked for
}

// Keeps asks each leader once where its logs begin and end. If records are deleted by age, it
// asks several times for the first record after a moment (ages). If they are deleted by size,
// it asks how large the logs are (sizes).
func (s *Source) Keeps(ctx context.Context, marks []sources.Mark, ahead time.Duration) ([]sources.Kept, error) {
	all, err := s.keeps(ctx, marks, ahead)
	if _, changed := errors.AsType[*sources.Changed](err); changed { // a topic went between two requests; now it is known which one
		return s.keeps(ctx, marks, ahead)
	}
	return all, err
}

func (s *Source) keeps(ctx context.Context, marks []sources.Mark, ahead time.Duration) ([]sources.Kept, error) {
	all := make([]sources.Kept, len(marks))
	var k keeps
	lost := false
	there, err := s.there(ctx)
	if err != nil {
		return nil, err
	}
	for i, m := range marks {
		all[i] = sources.Kept{Low: sources.Position{Segment: m.Position.Segment}, Head: sources.Position{Segment: m.Position.Segment}, ByAge: sources.Never, Room: sources.Never, Retention: sources.Never}
		if p, known := s.wasPlanned(m.Partition); known {
			if all[i].Err = there.gone(p); all[i].Err != nil {
				all[i].Gone, lost = true, true
				continue
			}
		}
		p, err := s.find(ctx, m.Partition)
		if err != nil {
			all[i].Err = err
			continue
		}
		k.parts, k.at, k.kept = append(k.parts, p), append(k.at, m.Position.Offset), append(k.kept, &all[i])
	}
	if len(k.parts) == 0 {
		return all, nil
	}
	switch err := k.bounds(ctx, s); {
	case err != nil && lost: // while one topic is missing, nothing can be asked about the others
		for _, x := range k.kept {
			x.Err = err
		}
		return all, nil
	case err != nil || ahead < 0:
		return all, err
	}
	policies, err := s.policies(ctx)
	if err != nil {
		return nil, err
	}
	for i, p := range k.parts {
		q := policies[p.name]
		k.kept[i].Retention, k.kept[i].Blind = q.age, q.blind
	}
	if err := k.ages(ctx, s, policies, ahead); err != nil {
		return nil, err
	}
	return all, k.sizes(ctx, s, policies)
}

// ids has the existing topics, by name.
type ids map[string]topicID

// there asks which of the spec's topics exist. It looks for a missing one long enough that
// every broker would know it.
func (s *Source) there(ctx context.Context) (ids, error) {
	_, topics, err := s.topics(ctx)
	if _, missing := errors.AsType[*sources.Changed](err); missing {
		_, topics, err = s.client.metadata(ctx, s.o.Topics)
	}
	if err != nil {
		return nil, err
	}
	all := ids{}
	for _, t := range topics {
		switch t.code {
		case codeNone:
			all[t.name] = t.id
		case codeUnknownTopic:
		default:
			return nil, answered(t.code, "topic "+t.name)
		}
	}
	return all, nil
}

// gone returns an error if the topic of a planned partition does not exist any more.
func (all ids) gone(p partition) error {
	switch id, is := all[p.name]; {
	case !is:
		return &sources.Changed{Range: sources.Range{Partition: p.id()}, Name: p.String(), What: "the topic was deleted"}
	case id != p.topic:
		return madeAgain(p, p.String(), sources.Range{Partition: p.id()}, id)
	}
	return nil
}

// wasPlanned returns a partition as it was first listed, by this source or by an earlier one.
func (s *Source) wasPlanned(id sources.PartitionID) (partition, bool) {
	if p, ok := s.planned[id]; ok {
		return p, true
	}
	return s.Listed(id)
}

// keeps is one call of Keeps: the partitions, and what is found out about them.
type keeps struct {
	parts []partition
	at    []int64 // the marked offsets
	kept  []*sources.Kept
}

func (k *keeps) bounds(ctx context.Context, s *Source) error {
	for _, one := range []struct {
		time int64
		set  func(*sources.Kept, int64)
	}{
		{atLogStart, func(x *sources.Kept, o int64) { x.Low.Offset = o }},
		{atHead, func(x *sources.Kept, o int64) { x.Head.Offset = o }},
	} {
		got, err := s.offsets(ctx, k.parts, one.time)
		if err != nil {
			return err
		}
		for i, a := range got {
			if k.kept[i].Err = errors.Join(k.kept[i].Err, a.err); a.err == nil {
				one.set(k.kept[i], a.offset)
			}
		}
	}
	return nil
}

// rounds bounds the search for the time that a record stays. Most searches take about ten.
const rounds = 32

// ages searches for how long each marked record stays because it, or one before it, is young
// enough. It searches for all partitions at once, with one request per leader and round.
// The result is never above the true time, and below it by at most an eighth or ahead/32,
// whichever is larger.
func (k *keeps) ages(ctx context.Context, s *Source, policies map[string]policy, ahead time.Duration) error {
	now := s.clock.Latest()
	var open []*search
	for i, p := range k.parts {
		if age := policies[p.name].age; age != sources.Never && k.kept[i].Err == nil {
			k.kept[i].ByAge = age // no present record stays longer because of its age
			open = append(open, &search{i: i, age: age, high: age, fine: max(ahead/32, 100*time.Millisecond)})
		}
	}
	for round := 0; round < rounds && len(open) > 0; round++ {
		parts, times := make([]partition, len(open)), make([]int64, len(open))
		for n, q := range open {
			parts[n], times[n] = k.parts[q.i], max(0, now.Add(q.next()-q.age).UnixMilli())
		}
		got, err := s.offsetsAt(ctx, parts, times)
		if err != nil {
			return err
		}
		rest := open[:0]
		for n, q := range open {
			x, young := k.kept[q.i], got[n].offset // the first record that is at least that young
			if got[n].err != nil {
				x.Err = errors.Join(x.Err, got[n].err)
				continue
			}
			if young < 0 {
				young = x.Head.Offset
			}
			if q.take(young <= k.at[q.i]); !q.done() {
				rest = append(rest, q)
			} else {
				x.ByAge = q.low
			}
		}
		open = rest
	}
	for _, q := range open {
		k.kept[q.i].ByAge = q.low
	}
	return nil
}

// search is the search for one record: it stays at least for low and at most for high.
type search struct {
	i         int
	age, fine time.Duration
	low, high time.Duration
	whole     bool // the time age itself was tried
}

// next returns the time to try: first the whole age, then an eighth of high as long as low is
// 0, then the middle of low and high.
func (q *search) next() time.Duration {
	switch {
	case !q.whole:
		return q.age
	case q.low == 0 && q.high > 8*q.fine:
		return q.high / 8
	}
	return q.low + (q.high-q.low)/2
}

func (q *search) take(stays bool) {
	at := q.next()
	q.whole = true
	if stays {
		q.low = at
	} else {
		q.high = at
	}
}

func (q *search) done() bool { return q.high-q.low <= max(q.fine, q.low/8) }

// sizes turns retention.bytes into a number of records, by the mean size of the present
// records.
func (k *keeps) sizes(ctx context.Context, s *Source, policies map[string]policy) error {
	limited := func(p partition) bool { return policies[p.name].bytes != sources.Never }
	if !slices.ContainsFunc(k.parts, limited) {
		return nil
	}
	sizes, err := s.logSizes(ctx, k.parts)
	if err != nil {
		return err
	}
	for i, p := range k.parts {
		x := k.kept[i]
		if !limited(p) || x.Err != nil {
			continue
		}
		size, ok := sizes[p.String()]
		if !ok {
			x.Blind = "Kafka does not tell this user how large the partition is (DESCRIBE on the cluster), so deletion by retention.bytes is not foreseen"
			continue
		}
		if n := x.Head.Offset - x.Low.Offset; n > 0 && size > 0 {
			x.Room = int64(float64(policies[p.name].bytes)/(float64(size)/float64(n))) - (x.Head.Offset - max(k.at[i], x.Low.Offset))
		}
	}
	return nil
}

// Rewrites reports whether Kafka compacts the partition's topic. It is also true if Kafka
// does not say.
func (s *Source) Rewrites(ctx context.Context, id sources.PartitionID) (bool, error) {
	p, err := s.find(ctx, id)
	if err != nil {
		return false, err
	}
	all, err := s.policies(ctx)
	if err != nil {
		return false, err
	}
	return all[p.name].compacts || all[p.name].untold, nil
}

// policies returns the policies of all topics. It asks for them once in policyFor. If the
// user may not ask for a topic, its policy says so, and there is no error.
func (s *Source) policies(ctx context.Context) (map[string]policy, error) {
	s.mu.Lock()
	known := s.policy
	s.mu.Unlock()
	if known != nil && time.Since(known[s.o.Topics[0]].at) < policyFor {
		return known, nil
	}
	req := &kafkago.DescribeConfigsRequest{}
	for _, t := range s.o.Topics {
		req.Resources = append(req.Resources, kafkago.DescribeConfigRequestResource{ResourceType: kafkago.ResourceTypeTopic,
			ResourceName: t, ConfigNames: []string{"cleanup.policy", "retention.ms", "retention.bytes"}})
	}
	res, err := s.client.kafka.DescribeConfigs(ctx, req)
	if err != nil {
		return nil, s.client.explain(ctx, err)
	}
	all := map[string]policy{}
	for _, t := range s.o.Topics {
		all[t] = policy{age: sources.Never, bytes: sources.Never, at: time.Now(), untold: true, blind: "Kafka did not answer for the topic's configuration"}
	}
	for _, r := range res.Resources {
		if _, ours := all[r.ResourceName]; ours {
			all[r.ResourceName] = policyOf(&r)
		}
	}
	s.mu.Lock()
	s.policy = all
	s.mu.Unlock()
	return all, nil
}

func policyOf(r *kafkago.DescribeConfigResponseResource) policy {
	q := policy{age: sources.Never, bytes: sources.Never, at: time.Now()}
	if r.Error != nil {
		q.untold = true
		q.blind = fmt.Sprintf("Kafka does not tell this user the topic's retention (DESCRIBE_CONFIGS), so deletion is not foreseen: %v", r.Error)
		return q
	}
	deletes := true
	for _, e := range r.ConfigEntries {
		switch e.ConfigName {
		case "cleanup.policy":
			deletes = strings.Contains(e.ConfigValue, "delete")
			q.compacts = strings.Contains(e.ConfigValue, "compact")
		case "retention.ms":
			if ms, err := strconv.ParseInt(e.ConfigValue, 10, 64); err == nil && ms >= 0 && ms < sources.Never/int64(time.Millisecond) {
				q.age = time.Duration(ms) * time.Millisecond
			}
		case "retention.bytes":
			if n, err := strconv.ParseInt(e.ConfigValue, 10, 64); err == nil && n >= 0 {
				q.bytes = n
			}
		}
	}
	if !deletes {
		q.age, q.bytes = sources.Never, sources.Never
	}
	return q
}
