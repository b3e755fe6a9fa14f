package pulsar

import (
	"context"
	"time"

	"github.com/headrace/headrace/sources"
)

// When Pulsar loads a topic (its broker starts, the topic is unloaded) it begins another
// ledger, and deletes the one that was open if no entry is in it. Such a ledger is sealed
// as it was listed, empty. Any other open ledger that is gone was deleted with its
// entries: records may be lost, and that must be told.

// sight is an open ledger that was listed and there.
type sight struct {
	ledger int64
	at     time.Time
}

// saw remembers when the open ledger that was listed last was there. s.mu is held.
func (s *Source) saw(p partition, l *layout) {
	all := s.listed[p.id()]
	if n := len(all); n > 0 && !all[n-1].Sealed && ledgerOf(all[n-1].ID) == l.open().Ledger {
		s.sights[p] = sight{l.open().Ledger, time.Now()}
	}
}

// vanished is the open segment that was listed last, if its ledger is gone.
func vanished(l *layout, listed []sources.Segment) (sources.Segment, bool) {
	if len(listed) == 0 || listed[len(listed)-1].Sealed {
		return sources.Segment{}, false
	}
	last := listed[len(listed)-1]
	_, there := l.find(ledgerOf(last.ID))
	return last, !there
}

// wasEmpty says whether a ledger that vanished held no entry, as far as it can be known:
// nothing could have deleted an entry that our retaining subscription had not passed.
func (s *Source) wasEmpty(ctx context.Context, p partition, l *layout, g sources.Segment) (bool, error) {
	if g.Start > 0 || g.End > 0 {
		return false, nil
	}
	ledger := ledgerOf(g.ID)
	next, retained, err := l.cursor(s.o.Retain)
	if err != nil {
		return false, err
	}
	if retained && !(messageAt{Ledger: ledger}).before(next) {
		return true, nil // it has not passed the ledger's first entry
	}
	// Of a topic without an entry Pulsar moves it to the new ledger. A policy that passes
	// entries leaves it there, too.
	q, err := s.policyOf(ctx, p)
	switch {
	case err != nil:
		return false, err
	case q.blind != "":
		return false, nil
	case q.forever:
		return true, nil
	case !retained || q.evicts > 0:
		return false, nil
	case q.moved == 0:
		return true, nil
	}
	// What came after the ledger was seen is too young for the policy.
	s.mu.Lock()
	before := s.sights[p]
	s.mu.Unlock()
	return before.ledger == ledger && time.Since(before.at) < q.deletes(), nil
}
