package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/wire"
)

// Deletion says what a source has deleted of one segment.
type Deletion = shardsvc.Deletion

// deletions keeps all known deletions, by dataset. Deleted records never come back, so a
// finding stays true while the source cannot be asked.
type deletions struct {
	mu sync.Mutex
	of map[uint32][]Deletion
}

// NoteDeleted adds the findings of the master's guard to those of a dataset. A new finding
// replaces the older one of the same segment.
func (s *Server) NoteDeleted(dataset uint32, found []Deletion) {
	s.deletions.mu.Lock()
	defer s.deletions.mu.Unlock()
	if s.deletions.of == nil {
		s.deletions.of = map[uint32][]Deletion{}
	}
	all := s.deletions.of[dataset]
	at := map[[2]any]int{}
	for i := range all {
		at[[2]any{all[i].Source, all[i].Segment}] = i
	}
	for _, d := range found {
		d.Dataset = dataset
		if i, known := at[[2]any{d.Source, d.Segment}]; known {
			all[i] = d
			continue
		}
		all = append(all, d)
	}
	s.deletions.of[dataset] = all
}

// SetDeleted replaces the findings of a dataset by those of the master's listing.
func (s *Server) SetDeleted(dataset uint32, found []Deletion) {
	all := slices.Clone(found)
	for i := range all {
		all[i].Dataset = dataset
	}
	s.deletions.mu.Lock()
	defer s.deletions.mu.Unlock()
	if s.deletions.of == nil {
		s.deletions.of = map[uint32][]Deletion{}
	}
	s.deletions.of[dataset] = all
}

// ForgetDeleted drops the findings of a dataset that does not exist any more.
func (s *Server) ForgetDeleted(dataset uint32) {
	s.deletions.mu.Lock()
	defer s.deletions.mu.Unlock()
	delete(s.deletions.of, dataset)
}

// ForgetTrimmed drops the findings of segments that are no longer listed by themselves, because
// they were trimmed. The finding of the last one of them stays for all.
func (s *Server) ForgetTrimmed(ctx context.Context, dataset uint32) error {
	return s.view(ctx, func(l *loop) {
		of := map[string][]uint32{} // the partitions of each partition of the source
		for _, p := range l.core.Partitions(dataset) {
			of[p.Source] = append(of[p.Source], p.Number)
		}
		s.deletions.mu.Lock()
		defer s.deletions.mu.Unlock()
		some, any := s.deletions.of[dataset]
		if !any {
			return
		}
		s.deletions.of[dataset] = slices.DeleteFunc(some, func(d Deletion) bool {
			return !slices.ContainsFunc(of[d.Source], func(p uint32) bool {
				next := l.core.Segments(p, d.Segment-1, 1)
				return len(next) > 0 && next[0].ID == d.Segment
			})
		})
	})
}

// deleted returns the known deletions of all datasets.
func (s *Server) deleted() (all []Deletion) {
	s.deletions.mu.Lock()
	defer s.deletions.mu.Unlock()
	for _, some := range s.deletions.of {
		all = append(all, some...)
	}
	return all
}

// goneOf lists the deleted records that going back to a cut would need. It asks the loop
// about one cut, so that other calls get their turn between two cuts.
func (s *Server) goneOf(ctx context.Context, k *shardsvc.CutInfo) (*headracev1.Gone, error) {
	deleted := s.deleted()
	if k.State == shardsvc.CutVoided || len(deleted) == 0 {
		return nil, nil
	}
	var out *headracev1.Gone
	if err := s.view(ctx, func(l *loop) { out = l.goneProto(l.core.GoneOf(k.ID, deleted)) }); err != nil {
		return nil, err
	}
	return out, nil
}

func (l *loop) goneProto(g shardsvc.Gone) *headracev1.Gone {
	if len(g.Ranges) == 0 && !g.AtLeast {
		return nil
	}
	out := &headracev1.Gone{More: uint32(g.More), Units: g.Units, AtLeast: g.AtLeast, Stops: g.Stops}
	for _, x := range g.Ranges {
		d, _ := l.core.Dataset(x.Dataset)
		out.Ranges = append(out.Ranges, &headracev1.GoneRange{Dataset: x.Name, Partition: wire.Valid(x.Label), Identity: wire.Valid(x.Source), Pass: x.Pass, Passes: x.Passes,
			Segment: x.Segment, Start: x.Start, End: x.End, Unit: d.Options.UnitOf(x.Source), Stops: x.Stops, Whole: x.All})
	}
	return out
}

const goneNamed = 5 // ranges in one sentence

// goneText names the first ranges.
func goneText(g *shardsvc.Gone) string {
	var some []string
	for _, x := range g.Ranges[:min(len(g.Ranges), goneNamed)] {
		some = append(some, fmt.Sprintf("[%d, %d) of %s (dataset %s, pass %d)", x.Start, x.End, x.Label, x.Name, x.Pass+1))
	}
	if more := len(g.Ranges) - len(some) + g.More; more > 0 {
		some = append(some, fmt.Sprintf("and %d more ranges", more))
	}
	return strings.Join(some, ", ")
}

// notRewindable returns the error for a rewind to a cut that would make a dataset stop at a
// deleted range, and a hint what to do instead. Without this refusal the dataset might
// stop hours later, and the checkpoints saved until then would be useless.
func (l *loop) notRewindable(to *cut.Cut, g *shardsvc.Gone, deleted []Deletion) (hint string, err error) {
	what, rank := "the start", int64(cut.Group)
	if to != nil {
		what, rank = fmt.Sprintf("step %d (cut %v)", to.Step, to.ID), int64(to.Rank)
	}
	var stop, exact, whole []string // datasets
	for _, x := range g.Ranges {
		at := &stop
		if d, _ := l.core.Dataset(x.Dataset); d.Options.VirtualRanks > 0 {
			at = &exact
		}
		if x.All {
			at = &whole
		}
		if x.Stops && !slices.Contains(*at, x.Name) {
			*at = append(*at, x.Name)
		}
	}
	var ways []string
	if other := l.rewindable(rank, to, deleted); other != nil {
		ways = append(ways, fmt.Sprintf("go back to step %d (cut %v): every record after it is still there", other.Step, cut.ID(other.ID)))
	}
	if len(stop) > 0 {
		ways = append(ways, fmt.Sprintf("write on_loss: continue into the spec of %s and apply it: the deleted records then become excluded, and are listed", strings.Join(stop, ", ")))
	}
	if len(exact) > 0 {
		ways = append(ways, fmt.Sprintf("delete bit_exact dataset %s, because its batches would be different without these records: the model then goes back without it", strings.Join(exact, ", ")))
	}
	if len(whole) > 0 {
		ways = append(ways, fmt.Sprintf("delete dataset %s, because its topic does not exist any more: the model then goes back without it", strings.Join(whole, ", ")))
	}
	return strings.Join(ways, "; or "), errors.New("cannot go back to " + what + ": the source has deleted records that would be read again: " + goneText(g))
}

// rewindable returns the newest cut of the rank (or cut.Group), other than but, to which
// the job can go back without a loss.
func (l *loop) rewindable(rank int64, but *cut.Cut, deleted []Deletion) *shardsvc.CutInfo {
	all := l.core.Cuts()
	for i := len(all) - 1; i >= 0; i-- {
		k := &all[i]
		if k.Rank != rank || k.State != shardsvc.CutBound && k.State != shardsvc.CutCarried || but != nil && k.ID == uint64(but.ID) {
			continue
		}
		if g := l.core.GoneOf(k.ID, deleted); g.Units == 0 && !g.AtLeast {
			return k
		}
	}
	return nil
}

// tellGone logs the deleted records that a model needs after it went back to a cut. Only a
// rewind by hand is refused for them; a trainer restores without asking a person.
func (s *Server) tellGone(id uint64) {
	deleted := s.deleted()
	if id == 0 || len(deleted) == 0 {
		return
	}
	s.background(func(ctx context.Context) {
		var g shardsvc.Gone
		if err := s.view(ctx, func(l *loop) { g = l.core.GoneOf(id, deleted) }); err != nil || g.Units == 0 {
			return
		}
		then := "they become excluded (on_loss: continue)"
		if g.Stops {
			then = "the dataset stops there; with on_loss: continue in its spec they become excluded"
		}
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the model went back to a checkpoint, and the source has deleted records after it",
			slog.String("cut", cut.ID(id).String()), slog.String("ranges", goneText(&g)), slog.Int64("units", g.Units), slog.String("then", then))
	})
}
