package pulsar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// Segments lists ledgers. With an end, the last segment ends there; that end is found once.
// In a live partition the last segment is the open ledger, not sealed. When Pulsar has begun
// another ledger, the segment is listed again, sealed.
func (s *Source) Segments(ctx context.Context, id sources.PartitionID, after int64, most int) ([]sources.Segment, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	p, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	all, err := s.list(ctx, p)
	if err != nil {
		return nil, err
	}
	var some []sources.Segment
	for _, g := range all {
		if g.ID > after && len(some) < most {
			some = append(some, g)
		}
	}
	return some, nil
}

// list returns every segment that was listed before or can be listed now.
func (s *Source) list(ctx context.Context, p partition) ([]sources.Segment, error) {
	s.mu.Lock()
	listed, fixed := s.listed[p.id()], s.fixed[p.id()]
	s.mu.Unlock()
	if fixed {
		return listed, nil
	}
	l, err := s.layoutOf(ctx, p)
	if err != nil {
		return nil, err
	}
	if g, gone := vanished(&l, listed); gone {
		empty, err := s.wasEmpty(ctx, p, &l, g)
		if err != nil {
			return nil, err
		}
		if empty {
			l.emptied = append(l.emptied, g.ID)
		}
	}
	start, err := s.startOf(ctx, p, &l, listed)
	if err != nil {
		return nil, err
	}
	if l.head().Compare(start) < 0 { // messages came since the ledgers were asked for
		if l, err = s.layoutOf(ctx, p); err != nil {
			return nil, err
		}
	}
	end := l.head()
	if !s.o.live() {
		if end, err = s.endOf(ctx, p, &l); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fixed[p.id()] { // another call may have been faster
		all, err := s.extend(p, &l, s.listed[p.id()], start, end)
		if err != nil {
			return nil, err
		}
		s.listed[p.id()], s.fixed[p.id()] = all, !s.o.live()
		s.saw(p, &l)
	}
	return s.listed[p.id()], nil
}

// extend lists the ledgers of [start, end) that are not listed yet, and seals the one
// that was open.
func (s *Source) extend(p partition, l *layout, listed []sources.Segment, start, end sources.Position) ([]sources.Segment, error) {
	all := append([]sources.Segment(nil), listed...)
	if g, gone := vanished(l, all); gone {
		if last := len(all) - 1; slices.Contains(l.emptied, g.ID) {
			all[last].Sealed = true
		} else {
			all = all[:last] // it was deleted before its end was known; without it the master reports that it is gone
		}
	}
	for i, g := range l.Ledgers {
		seg := sources.Segment{ID: segmentOf(g.Ledger), End: at(g.Entries, 0), Locator: p.locator(g.Ledger),
			Sealed: !s.o.live() || i < len(l.Ledgers)-1, Name: ledgerName(p, g.Ledger)}
		if seg.ID < start.Segment || seg.ID > end.Segment {
			continue
		}
		if seg.ID == start.Segment {
			seg.Start = start.Offset
		}
		if seg.ID == end.Segment {
			seg.End = end.Offset
		}
		if n := len(all); n > 0 {
			last := &all[n-1]
			switch {
			case g.Ledger < ledgerOf(last.ID):
				continue
			case g.Ledger == ledgerOf(last.ID) && !last.Sealed:
				last.End, last.Sealed = max(last.End, seg.End), seg.Sealed
				continue
			case g.Ledger == ledgerOf(last.ID):
				if seg.ID, seg.Start = last.ID+1, last.End; ledgerOf(seg.ID) != g.Ledger && seg.Start < seg.End {
					return nil, fmt.Errorf("%s was listed in %d pieces, and no more are possible: delete the dataset and apply it again", seg.Name, lastPiece+1)
				}
			}
		}
		if seg.Start < seg.End || !seg.Sealed {
			all = append(all, seg)
		}
	}
	return all, nil
}

// startOf returns where a partition is read from: the start of the first listed segment, or
// the spec's start if nothing is listed.
func (s *Source) startOf(ctx context.Context, p partition, l *layout, listed []sources.Segment) (sources.Position, error) {
	if len(listed) > 0 {
		return sources.Position{Segment: segmentOf(ledgerOf(listed[0].ID)), Offset: listed[0].Start}, nil
	}
	s.mu.Lock()
	start := s.o.Start
	if s.HasJoined(p.id()) && start.At == brokers.Latest {
		start.At = brokers.Earliest
	}
	s.mu.Unlock()
	return s.resolve(ctx, p, start, "start", l)
}

func (s *Source) endOf(ctx context.Context, p partition, l *layout) (sources.Position, error) {
	return s.resolve(ctx, p, s.o.End, "end", l)
}

// resolve finds the place that an end means in a partition now.
func (s *Source) resolve(ctx context.Context, p partition, e End, name string, l *layout) (sources.Position, error) {
	if id, ok := e.Of(p.String(), numberOf(p.topic)); ok {
		return s.placeIn(p, id, name, l)
	}
	switch e.At {
	case brokers.Earliest:
		return position(l.Ledgers[0].Ledger, 0), nil
	case brokers.Latest:
		return s.visible(ctx, p, l)
	case brokers.AtTime:
		var m messageAt
		err := s.admin.get(ctx, fmt.Sprintf("%s/messageid/%d", adminPath(p.topic), e.Time.UnixMilli()), &m)
		if isNotFound(err) {
			return l.head(), nil
		}
		found := position(m.Ledger, at(max(0, m.Entry), 0))
		if head, err := s.visible(ctx, p, l); err != nil || found.Compare(head) > 0 {
			return head, err // no visible message is that new
		}
		return found, err
	}
	return sources.Position{}, errors.New("pulsar: no such end")
}

// visible returns the position after the last message that a reader can see. From the first
// message of an open transaction on, no message can be seen, not even one outside of
// transactions. Pulsar's last message id does not say so. If Pulsar has begun another ledger
// since the ledgers were asked for, visible asks for them again.
//
// Just after it has loaded a topic, Pulsar does not know yet which transactions are open, and
// says of all messages that they belong to one. So if something is hidden, visible asks again
// when Pulsar knows it.
func (s *Source) visible(ctx context.Context, p partition, l *layout) (sources.Position, error) {
	pos, hides, err := s.shown(ctx, p, l)
	if err != nil || !hides {
		return pos, err
	}
	before, err := s.transactions(ctx, p)
	if err != nil {
		return pos, err
	}
	if pos, hides, err = s.shown(ctx, p, l); err != nil || !hides {
		return pos, err
	}
	after, err := s.transactions(ctx, p)
	if err == nil && before != after {
		err = temporary(fmt.Errorf("%s was loaded again by Pulsar while its last message was looked for", p))
	}
	return pos, err
}

// shown is visible at this moment. hides: there are messages that cannot be seen.
func (s *Source) shown(ctx context.Context, p partition, l *layout) (pos sources.Position, hides bool, err error) {
	var m messageAt
	if err := s.admin.get(ctx, adminPath(p.topic)+"/lastMessageId", &m); err != nil {
		return sources.Position{}, false, err
	}
	_, ok := l.find(m.Ledger)
	if !ok && m.Ledger > l.open().Ledger {
		now, err := s.layoutOf(ctx, p)
		if err != nil {
			return sources.Position{}, false, err
		}
		now.emptied = l.emptied
		*l = now
		_, ok = l.find(m.Ledger)
	}
	if !ok || m.Entry < 0 {
		if first := l.Ledgers[0].Ledger; m.Ledger < first { // the partition is empty
			return position(first, 0), position(first, 0).Compare(l.head()) < 0, nil
		}
		return position(m.Ledger, 0), false, nil
	}
	var failed error
	hidden := func(ledger, entry int64) bool {
		if failed != nil {
			return true
		}
		info, err := s.entry(ctx, p, ledger, entry)
		if err != nil && !isNotFound(err) { // a deleted entry could be seen
			failed = err
		}
		return info.hidden
	}
	if !hidden(m.Ledger, m.Entry) {
		return position(m.Ledger, at(m.Entry+1, 0)), false, failed
	}
	// All entries after the first hidden one are hidden, so a binary search finds it.
	var some []ledgerInfo
	for _, g := range l.Ledgers {
		if g.Ledger == m.Ledger {
			g.Entries = m.Entry + 1
		}
		if g.Entries > 0 && g.Ledger <= m.Ledger {
			some = append(some, g)
		}
	}
	g := some[sort.Search(len(some)-1, func(i int) bool { return hidden(some[i].Ledger, some[i].Entries-1) })]
	entry := sort.Search(int(g.Entries-1), func(i int) bool { return hidden(g.Ledger, int64(i)) })
	return position(g.Ledger, at(int64(entry), 0)), true, failed
}

// transactions returns since when Pulsar knows which transactions of a partition are open. Its
// error is a *sources.Temporary while Pulsar does not know it.
func (s *Source) transactions(ctx context.Context, p partition) (since int64, err error) {
	var b struct {
		State string `json:"state"`
		Since int64  `json:"recoverEndTime"` // ms since 1970
	}
	switch err := s.admin.get(ctx, transactionsPath(p.topic), &b); {
	case isNotFound(err), err != nil && strings.Contains(err.Error(), "transactionCoordinatorEnabled"):
		return 0, nil // this Pulsar has no transactions
	case err != nil:
		return 0, err
	}
	switch b.State {
	case "Ready", "NoSnapshot", "FirstSnapshotting":
		return b.Since, nil
	}
	return 0, temporary(fmt.Errorf("%s: Pulsar does not know yet which transactions are open (state %s)", p, b.State))
}

// placeIn returns an error if a message id that the spec names does not exist. Reading never
// begins at another message instead.
func (s *Source) placeIn(p partition, id Place, name string, l *layout) (sources.Position, error) {
	pos := position(id.Ledger, at(id.Entry, id.Index))
	if g, ok := l.find(id.Ledger); ok && id.Entry <= g.Entries {
		return pos, nil
	}
	low := position(l.Ledgers[0].Ledger, 0)
	if pos.Compare(low) >= 0 {
		return pos, fmt.Errorf("%s: %s is at message %d:%d, which is not there; its last entry is %s: name one that is there", p, name, id.Ledger, id.Entry, l.last)
	}
	return pos, &sources.Truncated{Lost: sources.Range{Partition: p.id(), Segment: pos.Segment, Start: pos.Offset, End: pos.Offset + 1}, Name: p.String(),
		Err: fmt.Errorf("%s names a message that Pulsar has deleted; the first ledger is %d now", name, l.Ledgers[0].Ledger)}
}

// numberOf returns N of topic-partition-N, and "0" for a topic without partitions.
func numberOf(topic string) string {
	if i := strings.LastIndex(topic, "-partition-"); i >= 0 {
		return topic[i+len("-partition-"):]
	}
	return "0"
}
