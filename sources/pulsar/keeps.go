package pulsar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/headrace/headrace/sources"
)

// Pulsar deletes a ledger when every durable subscription has passed it and the topic's
// retention does not keep it any more. Our subscription NAME-retain does not pass entries
// that are needed. But two policies of Pulsar move it. A TTL moves it past entries that are
// too old. A backlog quota that evicts moves it past entries that are too old, or that make
// the backlog too large. So an entry stays until one of the two reaches it, and then until
// the retention ends. Somebody may also move our subscription past needed entries, as
// `pulsar-admin namespaces clear-backlog` does. Then they stay only until the retention ends.

var _ sources.Keeper = (*Source)(nil)

const (
	policyFor   = time.Minute // how long a topic's policies are used before they are asked for again
	evictedDown = 0.9         // a quota that evicts leaves a backlog of this part of its size
	untilAny    = -1          // as Kept.Room: deletion may come at any time
)

// policy has the policies that make Pulsar delete entries that we still need. 0: no limit.
type policy struct {
	moved     time.Duration // subscriptions are moved past entries of this age
	evicts    int64         // subscriptions are moved when the backlog has so many bytes
	kept      time.Duration // the retention keeps entries at least so long
	forever   bool          // the retention deletes nothing
	blind     string        // why the policies are not known; "" if they are
	refreshed time.Time     // when they were asked for
}

// deletes returns the age up to which an entry surely stays; sources.Never if age deletes
// nothing.
func (q *policy) deletes() time.Duration {
	if q.moved == 0 || q.forever {
		return sources.Never
	}
	return max(q.moved, q.kept)
}

// stamp remembers when an entry was published.
type stamp struct {
	at        messageAt
	published time.Time
}

// Keeps asks once for each partition's ledgers, once a minute for its topic's policies,
// and for the entry at a mark when the mark has moved.
func (s *Source) Keeps(ctx context.Context, marks []sources.Mark, ahead time.Duration) ([]sources.Kept, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	all := make([]sources.Kept, len(marks))
	type answer struct {
		partition
		layout
		err error
	}
	known := map[sources.PartitionID]*answer{}
	for i, m := range marks {
		x := &all[i]
		*x = sources.Kept{ByAge: sources.Never, Room: sources.Never, Retention: sources.Never}
		a := known[m.Partition]
		if a == nil {
			a = &answer{}
			known[m.Partition] = a
			if a.partition, a.err = s.planned(ctx, m.Partition); a.err == nil {
				a.layout, a.err = s.layoutIf(ctx, a.partition)
			}
		}
		if x.Err = a.err; a.err != nil {
			_, x.Gone = errors.AsType[*sources.Changed](a.err)
			continue
		}
		x.Low, x.Head = position(a.Ledgers[0].Ledger, 0), s.inSegment(a.partition, a.head())
		if ahead >= 0 {
			x.Err = s.foretell(ctx, a.partition, &a.layout, m.Position, x)
		}
	}
	return all, ctx.Err()
}

// layoutIf returns the ledgers of a topic, or an error if it is not the planned one any more.
func (s *Source) layoutIf(ctx context.Context, p partition) (layout, error) {
	l, err := s.layoutOf(ctx, p)
	if err != nil {
		return l, err
	}
	created, err := s.madeAt(ctx, p.topic)
	if err == nil && created != p.created {
		err = madeAgain(p, p.String(), s.wholeOfLocked(p), partition{p.topic, created})
	}
	return l, err
}

// foretell fills in how far the entry at a position is from its deletion.
func (s *Source) foretell(ctx context.Context, p partition, l *layout, needed sources.Position, x *sources.Kept) error {
	q, err := s.policyOf(ctx, p)
	if err != nil {
		return err
	}
	x.Retention, x.Blind = q.deletes(), q.blind
	next, subscribed, err := l.cursor(s.o.Retain)
	if err != nil {
		return err
	}
	at := l.normal(s.next(needed))
	passed := subscribed && at.before(l.normal(next))
	x.Retained = subscribed && !passed
	g, there := l.find(at.Ledger)
	switch {
	case !there || at.Entry >= g.Entries: // it is deleted, or not written yet
		return nil
	case q.forever:
	case !subscribed:
		x.Room = untilAny
	case passed && q.blind == "" && q.moved == 0 && q.evicts == 0: // no policy has done that
		if x.Retention = q.kept; q.kept == 0 {
			x.Room, x.Retention = untilAny, sources.Never
		}
	case q.evicts > 0:
		x.Room = l.room(at, q.evicts)
	}
	if x.Retention == sources.Never {
		return nil
	}
	published, err := s.publishedAt(ctx, p, at)
	if err != nil {
		return err
	}
	x.ByAge = max(0, x.Retention-s.clock.Latest().Sub(published))
	return nil
}

// room returns how many offsets may be written before a quota of so many bytes evicts the
// entry at a place. It uses the mean size of the present entries.
func (l *layout) room(from messageAt, quota int64) int64 {
	var behind, bytes, entries float64
	for _, g := range l.Ledgers {
		bytes, entries = bytes+float64(g.Size), entries+float64(g.Entries)
		switch {
		case g.Ledger > from.Ledger:
			behind += float64(g.Size)
		case g.Ledger == from.Ledger && g.Entries > 0:
			behind += float64(g.Size) * float64(g.Entries-from.Entry) / float64(g.Entries)
		}
	}
	left := evictedDown*float64(quota) - behind
	if left <= 0 || bytes <= 0 {
		return untilAny
	}
	return int64(min(left/(bytes/entries)*float64(int64(1)<<indexBits), 1<<62))
}

// publishedAt returns when an entry was published.
func (s *Source) publishedAt(ctx context.Context, p partition, at messageAt) (time.Time, error) {
	s.mu.Lock()
	known, is := s.stamps[p]
	s.mu.Unlock()
	if is && known.at == at {
		return known.published, nil
	}
	info, err := s.entry(ctx, p, at.Ledger, at.Entry)
	if err != nil {
		return time.Time{}, err
	}
	published, err := time.Parse(time.RFC3339Nano, info.published)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: when entry %s of %s was published is %q: %w", s.admin.where(), at, p, info.published, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stamps[p] = stamp{at, published}
	return published, nil
}

// policyOf returns the policies of a partition's topic. If the user may not ask for them,
// policy.blind says so, and there is no error.
func (s *Source) policyOf(ctx context.Context, p partition) (policy, error) {
	topic := s.topicOf(p)
	s.mu.Lock()
	known, is := s.policies[topic]
	s.mu.Unlock()
	if is && time.Since(known.refreshed) < policyFor {
		return known, nil
	}
	q := policy{refreshed: time.Now()}
	switch err := q.read(ctx, s.admin, adminPath(topic)); {
	case isTemporary(err) || ctx.Err() != nil:
		return q, err
	case err != nil:
		q = policy{refreshed: q.refreshed,
			blind: fmt.Sprintf("Pulsar does not tell the policies of %s, so deletion by a TTL or a backlog quota is not foreseen: %v", shortName(topic), err)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policies[topic] = q
	return q, nil
}

// topicOf returns the spec's topic of a partition. Policies are set on the topic.
func (s *Source) topicOf(p partition) string {
	for _, topic := range s.o.Topics {
		if p.topic == topic || strings.HasPrefix(p.topic, topic+"-partition-") {
			return topic
		}
	}
	return p.topic
}

// read asks for the policies that apply: those of the topic, else of its namespace, else of
// the broker.
func (q *policy) read(ctx context.Context, a *admin, path string) error {
	var (
		ttl  int64
		keep struct {
			Minutes int64 `json:"retentionTimeInMinutes"`
			MiB     int64 `json:"retentionSizeInMB"`
		}
		quotas map[string]struct {
			Bytes   int64  `json:"limitSize"`
			Seconds int64  `json:"limitTime"`
			Policy  string `json:"policy"`
		}
	)
	for what, into := range map[string]any{"messageTTL": &ttl, "retention": &keep, "backlogQuotaMap": &quotas} {
		if err := a.call(ctx, http.MethodGet, path+"/"+what+"?applied=true", nil, into); err != nil {
			return err
		}
	}
	q.moved = time.Duration(ttl) * time.Second
	for _, one := range quotas {
		if one.Policy != "consumer_backlog_eviction" {
			continue
		}
		if age := time.Duration(one.Seconds) * time.Second; age > 0 && (q.moved == 0 || age < q.moved) {
			q.moved = age
		}
		if one.Bytes > 0 {
			q.evicts = one.Bytes
		}
	}
	q.forever = keep.Minutes < 0 && keep.MiB < 0
	if keep.MiB < 0 && keep.Minutes > 0 {
		q.kept = time.Duration(keep.Minutes) * time.Minute
	}
	return nil
}
