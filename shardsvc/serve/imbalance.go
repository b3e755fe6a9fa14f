package serve

import (
	"context"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
)

// imbalanceEvery is how often WatchImbalance looks.
const imbalanceEvery = 5 * time.Second

func imbalanceProto(i *shardsvc.Imbalance) *headracev1.Imbalance {
	if i == nil {
		return nil
	}
	return &headracev1.Imbalance{Idle: i.Idle, Busy: i.Busy, Leases: uint32(i.Leases), Seconds: time.Duration(i.Still).Seconds()}
}

// WatchImbalance logs when two ranks wait for each other: one waits for rows, and another
// holds rows and makes no progress. It returns when ctx or the server ends.
func (s *Server) WatchImbalance(ctx context.Context) {
	told := map[string]bool{}
	every := time.NewTicker(imbalanceEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		now := map[string]*shardsvc.Imbalance{}
		err := s.view(ctx, func(l *loop) {
			for _, d := range l.core.Datasets() {
				if i := l.core.Imbalance(d.ID); i != nil {
					now[d.Name] = i
				}
			}
		})
		if err != nil {
			return
		}
		for name := range told {
			if now[name] == nil {
				delete(told, name)
			}
		}
		for name, i := range now {
			if !told[name] {
				told[name] = true
				s.cfg.Logger.Warn("a rank waits for rows while another one holds some, and nobody makes progress. If the ranks train in step, they need rounds: "+
					"a master with --model replicated, and no rounds=False in the program", "dataset", name, "idle", i.Idle, "busy", i.Busy, "leases", i.Leases,
					"for", time.Duration(i.Still).Round(time.Second).String())
			}
		}
	}
}
