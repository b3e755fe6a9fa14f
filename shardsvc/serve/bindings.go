package serve

import (
	"context"
	"sync"
	"time"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
)

// bindings remembers when cuts were bound, or else frozen, for people and metrics. It is
// not durable. If a cut was bound in an earlier term, its manifest says when.
type bindings struct {
	mu    sync.Mutex
	at    map[uint64]time.Time
	asked map[uint64]bool
}

func (b *bindings) seen(id uint64, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at == nil {
		b.at = map[uint64]time.Time{}
	}
	b.at[id] = at
}

func (b *bindings) forget(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.at, id)
	delete(b.asked, id)
}

// age returns how long a cut has been bound. If that is not known, ask is true for the
// first caller, which then looks at the manifest.
func (b *bindings) age(id uint64) (age time.Duration, ask bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at, ok := b.at[id]; ok {
		return max(time.Since(at), 0), false
	}
	if b.asked[id] {
		return 0, false
	}
	if b.asked == nil {
		b.asked = map[uint64]bool{}
	}
	b.asked[id] = true
	return 0, true
}

// boundAge returns how long a cut has been bound. If that is not known yet, it returns 0
// and looks at the manifest in the background, for the next caller.
func (s *Server) boundAge(k *shardsvc.CutInfo) time.Duration {
	age, ask := s.bindings.age(k.ID)
	if ask && s.cfg.Look != nil && k.Path != "" {
		id, path := k.ID, k.Path
		s.background(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, lookWithin)
			defer cancel()
			if found, created, err := s.look(ctx, path, cut.ID(id)); err == nil && found {
				s.bindings.seen(id, created)
			}
		})
	}
	return age
}

// newest returns the newest cut in a state, or for private the newest of each rank.
func newest(cuts []shardsvc.CutInfo, state shardsvc.CutState) map[uint64]bool {
	of := map[int64]uint64{}
	for i := range cuts { // in order
		if cuts[i].State == state {
			of[cuts[i].Rank] = cuts[i].ID
		}
	}
	out := map[uint64]bool{}
	for _, id := range of {
		out[id] = true
	}
	return out
}
