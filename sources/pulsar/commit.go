package pulsar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"
	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

const commitWithin = 20 * time.Second

// A dataset has two durable subscriptions. NAME shows our progress to Pulsar's own tools.
// NAME-retain keeps Pulsar from deleting messages that a kept checkpoint may have to read
// again. Nobody consumes with them: the admin API moves their cursors forward and back, and
// each move is read back.
var (
	_ sources.Committer = (*Source)(nil)
	_ sources.Retainer  = (*Source)(nil)
)

// Commit moves the cursor that shows our progress. It does not go back unless a mark
// says so.
func (s *Source) Commit(ctx context.Context, marks []sources.Mark) error {
	return s.moveAll(ctx, s.o.Progress, marks, func(_ *layout, m sources.Mark) messageAt { return s.next(m.Position) })
}

// Retain moves the cursor that keeps messages. It keeps the ledger before that of the mark
// too: a message in chunks whose last chunk lies after the mark may begin there.
func (s *Source) Retain(ctx context.Context, marks []sources.Mark) error {
	return s.moveAll(ctx, s.o.Retain, marks, func(l *layout, m sources.Mark) messageAt {
		return l.ledgerBefore(ledgerOf(m.Position.Segment))
	})
}

// ledgerBefore returns the beginning of the ledger before the given one. If there is none, it
// returns the beginning of the given ledger.
func (l *layout) ledgerBefore(ledger int64) messageAt {
	first := messageAt{Ledger: ledger, Partition: -1}
	for _, g := range l.Ledgers {
		if g.Ledger < ledger {
			first.Ledger = g.Ledger
		}
	}
	return first
}

// next returns the first entry that is not done at a position. An entry is done when all of
// its messages are.
func (s *Source) next(p sources.Position) messageAt {
	return messageAt{Ledger: ledgerOf(p.Segment), Entry: entryOf(p.Offset), Partition: -1}
}

// Begin makes both subscriptions at the place where the dataset begins to read. A
// subscription that exists stays as it is, with one exception: if nothing of a partition is
// listed yet, NAME-retain goes back to where the dataset begins. A spec that was replaced, or a
// state folder that was lost, may have left it after that place, where it keeps too little.
func (s *Source) Begin(ctx context.Context, ids []sources.PartitionID) error {
	if err := s.Usable(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commitWithin)
	defer cancel()
	return s.each(ctx, askAtOnce, ids, func(ctx context.Context, p partition) error {
		l, err := s.layoutOf(ctx, p)
		if err != nil {
			return err
		}
		s.mu.Lock()
		listed := s.listed[p.id()]
		s.mu.Unlock()
		start, err := s.startOf(ctx, p, &l, listed)
		if err != nil {
			return err
		}
		for _, sub := range []struct {
			name string
			at   messageAt
		}{{s.o.Retain, l.ledgerBefore(ledgerOf(start.Segment))}, {s.o.Progress, s.next(start)}} {
			if sub.name == "" {
				continue
			}
			now, there, err := l.cursor(sub.name)
			switch {
			case err != nil:
			case !there:
				err = s.subscribe(ctx, p, sub.name, sub.at)
			case sub.name == s.o.Retain && len(listed) == 0 && sub.at.before(now) && !now.same(sub.at, &l):
				err = s.place(ctx, p, sub.name, sub.at)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// subscribe makes a subscription at the beginning of the topic, so that it keeps everything
// at once, and then moves it to a place. The admin API could not do that: it makes a
// subscription at the end of the topic and moves it back in a second step. If the broker is
// killed between the two steps, the subscription stays at the end and keeps nothing.
func (s *Source) subscribe(ctx context.Context, p partition, name string, at messageAt) error {
	c, err := s.connection()
	if err != nil {
		return err
	}
	made := make(chan error, 1)
	// The library's call has no context: it ends by itself within operationWithin.
	if !s.begin(func() {
		consumer, err := c.Subscribe(client.ConsumerOptions{Topic: p.url(), SubscriptionName: name, Type: client.Shared,
			SubscriptionInitialPosition: client.SubscriptionPositionEarliest, EnableZeroQueueConsumer: true})
		if err == nil {
			consumer.Close() // it acknowledged nothing
		}
		made <- err
	}) {
		return brokers.ErrClosed
	}
	select {
	case err = <-made:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return explain(ctx, "Pulsar at "+s.o.Service, fmt.Errorf("making subscription %s of %s: %w", name, p, err))
	}
	return s.place(ctx, p, name, at)
}

func (s *Source) subscription(p partition, name string) string {
	return adminPath(p.topic) + "/subscription/" + url.PathEscape(name)
}

// moveAll moves a subscription's cursor in each marked partition. If some cannot be moved, the
// others are, and the error is a *sources.Untold.
func (s *Source) moveAll(ctx context.Context, name string, marks []sources.Mark, to func(*layout, sources.Mark) messageAt) error {
	if name == "" {
		return errors.New("pulsar: no subscription in the options")
	}
	if err := s.Usable(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commitWithin)
	defer cancel()
	ids := make([]sources.PartitionID, len(marks))
	by := map[sources.PartitionID]sources.Mark{}
	for i, m := range marks {
		ids[i], by[m.Partition] = m.Partition, m
	}
	return s.each(ctx, asideAtOnce, ids, func(ctx context.Context, p partition) error { return s.move(ctx, p, name, by[p.id()], to) })
}

// move moves one cursor and reads back where it is, because Pulsar also answers OK to a move
// that did nothing.
func (s *Source) move(ctx context.Context, p partition, name string, m sources.Mark, to func(*layout, sources.Mark) messageAt) error {
	l, err := s.layoutOf(ctx, p)
	if err != nil {
		return err
	}
	at := to(&l, m)
	switch now, there, err := l.cursor(name); {
	case err != nil:
		return err
	case !there:
		return s.subscribe(ctx, p, name, at)
	case now.same(at, &l), !m.Back && at.before(now):
		return nil
	}
	if _, there := l.find(at.Ledger); !there {
		return nil // it is deleted already; the cursor that reads it returns the error with the range
	}
	return s.place(ctx, p, name, at)
}

// place moves a cursor to a place and reads back where it is.
func (s *Source) place(ctx context.Context, p partition, name string, at messageAt) error {
	if err := s.admin.call(ctx, http.MethodPost, s.subscription(p, name)+"/resetcursor", at, nil); err != nil {
		return fmt.Errorf("moving subscription %s of %s to %s: %w", name, p, at, err)
	}
	l, err := s.layoutOf(ctx, p)
	if err != nil {
		return err
	}
	now, there, err := l.cursor(name)
	if err == nil && (!there || !now.same(at, &l)) {
		err = temporary(fmt.Errorf("subscription %s of %s is at %s after it was moved to %s", name, p, now, at))
	}
	return err
}

// cursor returns the entry that a subscription would read next, and whether the subscription
// exists.
func (l *layout) cursor(name string) (messageAt, bool, error) {
	c, ok := l.Cursors[url.QueryEscape(name)]
	if !ok {
		return messageAt{}, false, nil
	}
	m, err := parsePlace(c.MarkDelete)
	m.Entry++
	return m, true, err
}

func (m messageAt) before(o messageAt) bool {
	return m.Ledger < o.Ledger || m.Ledger == o.Ledger && m.Entry < o.Entry
}

// same says whether two places are the same. The end of a ledger and the beginning of the
// next one are.
func (m messageAt) same(o messageAt, l *layout) bool {
	return l.normal(m) == l.normal(o)
}

// normal returns the beginning of the next ledger for a place at the end of a ledger, and
// other places unchanged.
func (l *layout) normal(m messageAt) messageAt {
	m.Partition = 0
	for i, g := range l.Ledgers {
		if i == len(l.Ledgers)-1 {
			break
		}
		if g.Ledger == m.Ledger && m.Entry >= g.Entries {
			m.Ledger, m.Entry = l.Ledgers[i+1].Ledger, 0
		}
	}
	return m
}

// Release removes both subscriptions of all topics. A topic that is gone has none any more. If
// a broker refuses, Release goes on with the other topics.
func (s *Source) Release(ctx context.Context) error {
	if err := s.Usable(ctx); err != nil {
		return err
	}
	errs := make([]error, len(s.o.Topics))
	for i, topic := range s.o.Topics {
		errs[i] = s.release(ctx, topic)
	}
	return errors.Join(errs...)
}

func (s *Source) release(ctx context.Context, topic string) error {
	names, err := s.namesOf(ctx, topic)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	errs := make([]error, len(names))
	var g errgroup.Group
	g.SetLimit(askAtOnce)
	for i, name := range names {
		g.Go(func() error {
			for _, sub := range []string{s.o.Retain, s.o.Progress} {
				if sub == "" {
					continue
				}
				p := partition{topic: name}
				if err := s.admin.call(ctx, http.MethodDelete, s.subscription(p, sub)+"?force=true", nil, nil); err != nil && !isNotFound(err) {
					errs[i] = errors.Join(errs[i], fmt.Errorf("removing subscription %s of %s: %w", sub, p, err))
				}
			}
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(errs...)
}

// each calls do for every partition, atOnce at a time. If one fails, the others go on.
func (s *Source) each(ctx context.Context, atOnce int, ids []sources.PartitionID, do func(context.Context, partition) error) error {
	errs := make([]error, len(ids))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, id := range ids {
		g.Go(func() error {
			p, err := s.planned(ctx, id)
			if err == nil {
				err = do(ctx, p)
			}
			errs[i] = err
			return nil
		})
	}
	_ = g.Wait()
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return err
	}
	return sources.UntoldOf(ids, errs)
}

// planned returns a partition of the dataset, if it is still the planned one. It asks only
// about this one: another may be gone.
func (s *Source) planned(ctx context.Context, id sources.PartitionID) (partition, error) {
	if p, ok := s.Listed(id); ok {
		return p, nil
	}
	p, err := parsePartition(id)
	if err != nil || !slices.Contains(s.o.Topics, s.topicOf(p)) {
		return p, fmt.Errorf("%s is not a partition of dataset %s, which reads topics %v", id, s.o.Dataset, s.o.Topics)
	}
	switch created, err := s.madeAt(ctx, p.topic); {
	case isNotFound(err):
		return p, deleted(p.String(), s.wholeOfLocked(p))
	case err != nil:
		return p, err
	case created != p.created:
		return p, madeAgain(p, p.String(), s.wholeOfLocked(p), partition{p.topic, created})
	}
	s.Put(id, p)
	return p, nil
}
