package serve

import (
	"sync"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc/wire"
)

// silences keeps the unanswered questions to sources, by dataset. The master's discovery and
// its guard ask the sources; their questions count alike.
//
// A source is silent since the first question after its last answer. So a call that hangs
// counts like a call that fails, and a source that nobody asks is not silent.
type silences struct {
	mu sync.Mutex
	of map[uint32]*unanswered
}

type unanswered struct {
	since  time.Time
	reason string
}

// SourceAsked says that the source of a dataset is asked something now.
func (s *Server) SourceAsked(dataset uint32) { s.silences.note(dataset, "") }

// SourceSilent says that the source did not answer, or not everything, and that another
// try may help.
func (s *Server) SourceSilent(dataset uint32, reason string) { s.silences.note(dataset, reason) }

// SourceAnswered says that the source answered, or that nobody asks it any more.
func (s *Server) SourceAnswered(dataset uint32) {
	s.silences.mu.Lock()
	defer s.silences.mu.Unlock()
	delete(s.silences.of, dataset)
}

func (x *silences) note(dataset uint32, reason string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of == nil {
		x.of = map[uint32]*unanswered{}
	}
	u := x.of[dataset]
	if u == nil {
		u = &unanswered{since: time.Now()}
		x.of[dataset] = u
	}
	if reason != "" {
		u.reason = reason
	}
}

// silence returns the silence of a dataset's source if it lasts SilentAfter or longer, else
// nil.
func (s *Server) silence(dataset uint32) *headracev1.Silence {
	s.silences.mu.Lock()
	defer s.silences.mu.Unlock()
	u := s.silences.of[dataset]
	if u == nil || time.Since(u.since) < s.cfg.SilentAfter {
		return nil
	}
	return &headracev1.Silence{SinceMs: u.since.UnixMilli(), Seconds: time.Since(u.since).Seconds(), Reason: wire.Valid(u.reason)}
}
