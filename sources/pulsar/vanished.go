package pulsar

import (
	"context"
	"time"

	"github.com/headrace/headrace/sources"
)

// When a broker loads a topic (after a restart or an unload), Pulsar begins another ledger
// and deletes the open one if it has no entry. Such a ledger is sealed as it was listed,
// empty. Any other open ledger that is gone was deleted with its entries: records may be
// lost, and the user must be told.

// sight says when a listed open ledger was last seen.
type sight struct {
	ledger int64
	at     time.Time
}

// saw notes that the open ledger of the last listed segment exists now. s.mu is held.
func (s *Source) saw(p partition, l *layout) {
	all := s.listed[p.id()]
	if n := len(all); n > 0 && !all[n-1].Sealed && ledgerOf(all[n-1].ID) == l.open().Ledger {
		s.sights[p] = sight{l.open().Ledger, time.Now()}
	}
}

// vanished returns the last listed segment if it is open, and whether its ledger is gone.
func vanished(l *layout, listed []sources.Segment) (sources.Segment, bool) {
	if len(listed) == 0 || listed[len(listed)-1].Sealed {
		return sources.Segment{}, false
	}
	last := listed[len(listed)-1]
	_, there := l.find(ledgerOf(last.ID))
	return last, !there
}

// wasEmpty says whether a ledger that is gone surely had no entry. Pulsar deletes no entry
// that our subscription NAME-retain has not passed. So the ledger was empty if the
// subscription has not passed its first entry, or if no policy can have moved the
// subscription past entries.
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
	// The subscription stands after the ledger. Pulsar moves it there if the topic has no
	// entry at all; a policy may have moved it past entries.
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
	// An entry that came after the ledger was last seen would be too young for the policy.
	s.mu.Lock()
	before := s.sights[p]
	s.mu.Unlock()
	return before.ledger == ledger && time.Since(before.at) < q.deletes(), nil
}
