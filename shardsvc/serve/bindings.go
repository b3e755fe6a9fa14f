package serve

import (
	"context"
	"sync"
	"time"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
)

// bindings remembers when cuts were bound, for people and metrics. It is not
// durable: of a cut that was bound in an earlier term its manifest is asked.
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

// age of a binding; ask says that nobody looked for it before.
func (b *bindings) age(id uint64) (age time.Duration, known, ask bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at, ok := b.at[id]; ok {
		return max(time.Since(at), 0), true, false
	}
	if b.asked[id] {
		return 0, false, false
	}
	if b.asked == nil {
		b.asked = map[uint64]bool{}
	}
	b.asked[id] = true
	return 0, false, true
}

// boundAge is how long a cut has been bound, as far as is known; else 0, and it
// is looked up for the next one who asks.
func (s *Server) boundAge(k *shardsvc.CutInfo) time.Duration {
	age, _, ask := s.bindings.age(k.ID)
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

// newest are the newest bound cuts: one, or for private one of each rank.
func newest(cuts []shardsvc.CutInfo) map[uint64]bool {
	of := map[int64]uint64{}
	for i := range cuts { // in order
		if cuts[i].State == shardsvc.CutBound {
			of[cuts[i].Rank] = cuts[i].ID
		}
	}
	out := map[uint64]bool{}
	for _, id := range of {
		out[id] = true
	}
	return out
}
