package landing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/shardsvc/serve"
)

// Run deletes what nothing needs, until ctx ends: chunks whose records are settled and lie
// below what the oldest kept checkpoint needs, once they are older than `retain`; staged
// chunks that nobody committed within `stage_ttl`; streams of deleted datasets. When it
// returns, no commit is under way, and none begins.
func (s *Service) Run(ctx context.Context) {
	defer func() {
		s.mu.Lock() // a commit begins with s.mu held: none comes between end and Wait
		s.end()
		s.mu.Unlock()
		s.running.Wait()
	}()
	defer context.AfterFunc(ctx, s.end)() // ends commits at once: they hold locks that the loop may be waiting for
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	var looks sync.WaitGroup
	looks.Go(func() { s.lookForOrphans(ctx) })
	defer looks.Wait()
	for {
		changed := s.srv.Changed()
		s.warn(ctx, s.recallAll(ctx))
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
			s.warn(ctx, s.clean(ctx))
		}
	}
}

// lookForOrphans looks when it begins, every few hours, and soon again after an error. It
// lists the whole storage, so it does not hold up Run.
func (s *Service) lookForOrphans(ctx context.Context) {
	for {
		err := s.orphans(ctx)
		s.warn(ctx, err)
		wait := s.orphaned
		if err != nil {
			wait = s.again
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (s *Service) warn(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, serve.ErrStopped) {
		s.log.Warn("pushed records that nothing needs were not deleted; it is tried again", "error", err)
	}
}

// orphans deletes streams that no dataset has. They are left if a deletion was cut short, or if
// a writer put a chunk after it. A stream gets its name before its first chunk. So orphans lists
// chunks first and then names, and does not take a new stream for an orphan. It also removes
// what killed writers have left in a folder.
func (s *Service) orphans(ctx context.Context) error {
	all, err := s.store.List(ctx, "", "", 0)
	if err != nil {
		return err
	}
	names, err := s.store.List(ctx, nameKey(""), "", 0)
	if err != nil {
		return err
	}
	live := map[string]bool{}
	for _, n := range names {
		stream, err := s.store.Get(ctx, n.Key, 0, -1)
		if err != nil {
			return err
		}
		live[string(stream)] = true
	}
	for _, o := range all {
		of, isNote := strings.CutPrefix(o.Key, "visible/")
		if _, err := chunk.ParseKey(o.Key); err != nil && !isNote {
			continue
		}
		if stream, _, _ := strings.Cut(of, "/"); !live[stream] {
			if err := s.store.Delete(ctx, o.Key); err != nil {
				return err
			}
		}
	}
	if f, ok := s.store.(interface {
		Sweep(ctx context.Context, before time.Time) error
	}); ok {
		return f.Sweep(ctx, s.now().Add(-putWithin))
	}
	return nil
}

// cleanedAtOnce is how many datasets are cleaned at a time.
const cleanedAtOnce = 4

func (s *Service) clean(ctx context.Context) error {
	err := s.each(ctx, cleanedAtOnce, func(*place) bool { return true }, s.cleanStream)
	return errors.Join(err, s.forget(ctx))
}

// forget drops what is known of the streams of deleted datasets.
func (s *Service) forget(ctx context.Context) error {
	all, err := s.srv.Datasets(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.stored, func(_ string, a *stored) bool {
		return a.of != "" && !slices.ContainsFunc(all, func(d serve.Dataset) bool { return d.Name == a.of })
	})
	return nil
}

// belongs notes the dataset of a stream. If another stream had its name, that dataset was deleted.
func (s *Service) belongs(stream string, to *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.stored, func(other string, a *stored) bool { return a.of == to.Name && other != stream })
	if a := s.stored[stream]; a != nil {
		a.of = to.Name
	}
}

// each calls do for the datasets of pushed records that is(dataset) accepts, if their partitions
// are listed: for so many datasets at a time as atOnce says.
func (s *Service) each(ctx context.Context, atOnce int, is func(*place) bool, do func(context.Context, *place, *stored) error) error {
	all, err := s.srv.Datasets(ctx)
	if err != nil {
		return err
	}
	failed := make([]error, len(all))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range all {
		l, ok := all[i].Spec.Landing()
		if p := (&place{Dataset: &all[i], Landing: l}); ok && len(p.Partitions()) > 0 && is(p) {
			g.Go(func() error {
				failed[i] = s.doWith(ctx, p, do)
				return nil
			})
		}
	}
	_ = g.Wait() // the errors are in failed
	return errors.Join(failed...)
}

// recallAll calls recall for each dataset that was not recalled yet.
func (s *Service) recallAll(ctx context.Context) error {
	return s.each(ctx, 1, func(p *place) bool { return !s.recalled[p.ID] }, func(ctx context.Context, p *place, a *stored) error {
		err := s.recall(ctx, p, a)
		s.recalled[p.ID] = err == nil
		return err
	})
}

func (s *Service) doWith(ctx context.Context, p *place, do func(context.Context, *place, *stored) error) (err error) {
	if p.stream, err = streamOf(ctx, s.store, p.Name); err != nil || !p.listed() {
		return err
	}
	a, err := s.account(ctx, p.stream)
	if err != nil {
		return err
	}
	s.belongs(p.stream, p)
	return do(ctx, p, a)
}

// cleanStream deletes the chunks of one dataset that nothing needs. Its cost grows with what
// there is to delete: of the storage it lists only the hours whose staged chunks have become too
// old, each hour once.
func (s *Service) cleanStream(ctx context.Context, p *place, a *stored) error {
	if err := s.recall(ctx, p, a); err != nil {
		return err
	}
	if err := s.sort(ctx, p, a); err != nil {
		return err
	}
	if err := s.cleanSettled(ctx, p, a); err != nil {
		return err
	}
	return s.cleanStaged(ctx, p, a)
}

// sort removes the committed chunks from a.staged. When the process began, all chunks of the
// stream were put there.
func (s *Service) sort(ctx context.Context, p *place, a *stored) error {
	s.mu.Lock()
	sorted := a.sorted
	s.mu.Unlock()
	if sorted {
		return nil
	}
	committed, err := s.committed(ctx, p)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range committed {
		if _, there := a.staged[key]; there {
			a.unstage(key)
			a.count(key)
		}
	}
	a.sorted = true
	return nil
}

// cleanStaged deletes chunks that nobody committed in time.
func (s *Service) cleanStaged(ctx context.Context, p *place, a *stored) error {
	now := s.now()
	if err := s.sweep(ctx, p, a, now); err != nil {
		return err
	}
	var late []storage.Object
	s.mu.Lock()
	for key, size := range a.staged {
		_, tried := a.condemned[key] // its deletion was tried and failed
		if k, err := chunk.ParseKey(key); err == nil && (tried || now.Sub(k.At) > p.StageTTL) && a.condemn(key) {
			late = append(late, storage.Object{Key: key, Size: size})
		}
	}
	s.mu.Unlock()
	if len(late) == 0 {
		return nil
	}
	committed, err := s.committed(ctx, p) // after they were condemned
	if err != nil {
		s.leave(a, late)
		return err
	}
	s.mu.Lock()
	late = slices.DeleteFunc(late, func(o storage.Object) bool {
		if committed[o.Key] { // its commit came while sweep listed it
			delete(a.condemned, o.Key)
			a.unstage(o.Key)
			a.bytes -= o.Size
		}
		return committed[o.Key]
	})
	s.mu.Unlock()
	slices.SortFunc(late, func(a, b storage.Object) int { return strings.Compare(a.Key, b.Key) })
	return s.delete(ctx, p, a, late, "they were staged, and not committed within stage_ttl")
}

// sweep finds chunks that writers have put on the storage themselves and never committed.
// It lists each hour once, when everything in it is older than stage_ttl.
func (s *Service) sweep(ctx context.Context, p *place, a *stored, now time.Time) error {
	last := now.Add(-p.StageTTL).UnixMilli()/time.Hour.Milliseconds() - 1
	if a.swept == 0 { // older chunks were listed when the process began (count)
		a.swept = min(last, s.began.Add(-p.StageTTL).UnixMilli()/time.Hour.Milliseconds()-1)
	}
	if a.swept >= last {
		return nil
	}
	var found []storage.Object
	for hour := a.swept + 1; hour <= last; hour++ {
		for part := range p.Landing.Partitions {
			some, err := s.store.List(ctx, fmt.Sprintf("%s/%d/%d/", p.stream, part, hour), "", 0)
			if err != nil {
				return err
			}
			found = append(found, some...)
		}
	}
	if len(found) > 0 {
		committed, err := s.committed(ctx, p)
		if err != nil {
			return err
		}
		s.mu.Lock()
		for _, o := range found {
			if _, known := a.staged[o.Key]; !known && !committed[o.Key] {
				a.stage(o.Key, o.Size)
				a.bytes += o.Size
			}
		}
		s.mu.Unlock()
	}
	a.swept = last
	return nil
}

// committed returns the keys of all visible chunks that are not deleted.
func (s *Service) committed(ctx context.Context, p *place) (map[string]bool, error) {
	all := map[string]bool{}
	for _, part := range p.Partitions() {
		segs, err := s.srv.Segments(ctx, part.Number, -1, 0)
		if err != nil {
			return nil, err
		}
		for _, g := range segs {
			if len(g.Locator) == 0 {
				continue // its chunk was deleted
			}
			l, _, err := chunk.ParseLocator(string(g.Locator))
			if err != nil {
				return nil, err
			}
			all[l.Key] = true
		}
	}
	return all, nil
}
