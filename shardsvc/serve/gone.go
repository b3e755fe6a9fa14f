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

// Deletion is what a source does not have any more of one segment.
type Deletion = shardsvc.Deletion

// deletions are what is known of them, by dataset. Nothing that was deleted comes
// back, so it outlives the moment in which the source cannot be asked.
type deletions struct {
	mu sync.Mutex
	of map[uint32][]Deletion
}

// NoteDeleted adds what the master's guard found to what is known of a dataset. Of each
// segment only the newest finding counts.
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

// ForgetDeleted forgets a dataset that is not there any more.
func (s *Server) ForgetDeleted(dataset uint32) {
	s.deletions.mu.Lock()
	defer s.deletions.mu.Unlock()
	delete(s.deletions.of, dataset)
}

// deleted is what is known of all datasets.
func (s *Server) deleted() (all []Deletion) {
	s.deletions.mu.Lock()
	defer s.deletions.mu.Unlock()
	for _, some := range s.deletions.of {
		all = append(all, some...)
	}
	return all
}

// goneOf lists what is deleted of one cut. It uses the loop for one cut at a time, so that
// others get their turn in between.
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
			Segment: x.Segment, Start: x.Start, End: x.End, Unit: d.Options.Unit, Stops: x.Stops, Whole: x.All})
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

// notRewindable says why nobody may go back to a cut from which the dataset would stop,
// and what to do instead. The dataset might stop hours later, and everything that was
// saved until then would be void.
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
		ways = append(ways, fmt.Sprintf("go back to step %d (cut %v): all that is behind it is there", other.Step, cut.ID(other.ID)))
	}
	if len(stop) > 0 {
		ways = append(ways, fmt.Sprintf("write on_loss: continue into the spec of %s and apply it: what is deleted becomes excluded then, and is listed", strings.Join(stop, ", ")))
	}
	if len(exact) > 0 {
		ways = append(ways, fmt.Sprintf("delete bit_exact dataset %s, whose batches are others without these records: the model goes back without it then", strings.Join(exact, ", ")))
	}
	if len(whole) > 0 {
		ways = append(ways, fmt.Sprintf("delete dataset %s, whose topic is not there any more: the model goes back without it then", strings.Join(whole, ", ")))
	}
	return strings.Join(ways, "; or "), errors.New("there is no going back to " + what + ", for the source has deleted what would be read again: " + goneText(g))
}

// rewindable is the newest cut that one can go back to without a loss: of the group,
// or of the rank.
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

// tellGone logs what a model that went back will miss. A trainer that goes back by itself
// asks nobody before.
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
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the source has deleted records behind the checkpoint that was gone back to",
			slog.String("cut", cut.ID(id).String()), slog.String("ranges", goneText(&g)), slog.Int64("units", g.Units), slog.String("then", then))
	})
}
