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

// sight says when the ledger of a listed open segment was last seen, and the most entries that
// were seen in it.
type sight struct {
	ledger, entries int64
	at              time.Time
}

// saw notes what a layout has of the ledger of the last listed segment, if that is open. s.mu
// is held.
func (s *Source) saw(p partition, l *layout) {
	all := s.listed[p.id()]
	if len(all) == 0 || all[len(all)-1].Sealed {
		return
	}
	g, there := l.find(ledgerOf(all[len(all)-1].ID))
	if !there {
		return
	}
	now := sight{g.Ledger, g.Entries, l.asked}
	if was := s.sights[p]; was.ledger == now.ledger { // an older answer may come later
		now.entries = max(now.entries, was.entries)
		if was.at.After(now.at) {
			now.at = was.at
		}
	}
	s.sights[p] = now
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

// wasEmpty says whether a ledger that is gone surely had no entry. It had one if one was seen
// in it, also after it was listed. Otherwise it goes by the subscription: Pulsar deletes no entry
// that our subscription NAME-retain has not passed. So the ledger was empty if the
// subscription has not passed its first entry, or if no policy can have moved the
// subscription past entries.
func (s *Source) wasEmpty(ctx context.Context, p partition, l *layout, g sources.Segment) (bool, error) {
	if g.Start > 0 || g.End > 0 {
		return false, nil
	}
	ledger := ledgerOf(g.ID)
	s.mu.Lock()
	before := s.sights[p]
	s.mu.Unlock()
	seen := before.ledger == ledger
	if seen && before.entries > 0 {
		return false, nil
	}
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
	return seen && time.Since(before.at) < q.deletes(), nil
}
