package landing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
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

func (s *Service) clean(ctx context.Context) error {
	return s.each(ctx, func(*place) bool { return true }, s.cleanStream)
}

// each calls do for the datasets of pushed records that is(dataset) accepts, if their partitions are listed.
func (s *Service) each(ctx context.Context, is func(*place) bool, do func(context.Context, *place, *stored) error) error {
	all, err := s.srv.Datasets(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for i := range all {
		l, ok := all[i].Spec.Landing()
		if p := (&place{Dataset: &all[i], Landing: l}); ok && len(p.Partitions()) > 0 && is(p) {
			failed = append(failed, s.doWith(ctx, p, do))
		}
	}
	return errors.Join(failed...)
}

// recallAll calls recall for each dataset that was not recalled yet.
func (s *Service) recallAll(ctx context.Context) error {
	return s.each(ctx, func(p *place) bool { return !s.recalled[p.ID] }, func(ctx context.Context, p *place, a *stored) error {
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
	return do(ctx, p, a)
}

// cleanStream deletes the chunks of one dataset that nothing needs. Its cost grows with what
// there is to delete: of the storage it lists only the hours whose staged chunks have become too
// old, each hour once.
func (s *Service) cleanStream(ctx context.Context, p *place, a *stored) error {
	if err := s.recall(ctx, p, a); err != nil {
		return err
	}
	marks, err := s.srv.RetainMarks(ctx, p.ID)
	if err != nil {
		return err
	}
	if err := s.sort(ctx, p, a); err != nil {
		return err
	}
	for _, part := range p.Partitions() {
		if err := s.cleanPartition(ctx, p, a, &part, marks); err != nil {
			return err
		}
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
		a.unstage(key)
	}
	a.sorted = true
	return nil
}

const page = 256 // segments that are asked for at a time

// cleanPartition deletes the first chunks of a partition, as many as nothing needs, and
// then has their segments trimmed. If it is cut short between the two, the next one finds
// no chunk and trims.
func (s *Service) cleanPartition(ctx context.Context, p *place, a *stored, part *serve.Partition, marks []sources.Mark) error {
	at := slices.IndexFunc(marks, func(m sources.Mark) bool { return m.Partition == part.Source })
	if at < 0 {
		return nil
	}
	deleted, known := a.deleted[part.Number]
	if !known {
		deleted = -1
	}
	var gone []storage.Object
	defer func() { s.leave(a, gone) }()
	// Trimmed segments are few, so this begins at the first one. Trim keeps the last segment that it
	// trims, so a single located segment is no reason to trim.
	now, next, located, trim := s.now(), int64(-1), false, false
	for done := false; !done; {
		segs, err := s.srv.Segments(ctx, part.Number, next, page)
		if err != nil {
			return err
		}
		done = len(segs) < page
		for _, g := range segs {
			trim = trim || located
			if (sources.Position{Segment: g.ID, Offset: g.End}).Compare(marks[at].Position) > 0 {
				done = true
				break
			}
			if len(g.Locator) > 0 { // else it was trimmed
				l, key, err := chunk.ParseLocator(string(g.Locator))
				if err != nil {
					return err
				}
				if g.ID > deleted {
					if age := now.Sub(key.At); age < p.Retain {
						s.announce(p, part, deleted, p.Retain-age)
						done = true
						break
					}
					if !s.condemn(a, l.Key) {
						done = true // the next round deletes it
						break
					}
					gone = append(gone, storage.Object{Key: l.Key, Size: l.Size})
				}
				located = true
			}
			next = g.ID
		}
	}
	// In their order: if a reader finds a chunk, it takes the later ones for stored too.
	if err := s.delete(ctx, p, a, gone, 1, "they are trained on, and no kept checkpoint needs them"); err != nil {
		return err
	}
	a.deleted[part.Number] = max(deleted, next)
	if !trim {
		return nil
	}
	return s.srv.Trim(ctx, part.Number, next+1)
}

// announce says once for each partition, before anything of it is deleted, from when on
// going back to the start misses records.
func (s *Service) announce(p *place, part *serve.Partition, deleted int64, left time.Duration) {
	if deleted >= 0 || s.announced[part.Number] {
		return
	}
	s.announced[part.Number] = true
	s.log.Info("pushed records that are trained on, and that no kept checkpoint needs, will be deleted: going back to the start then misses them; a longer landing.retain keeps them",
		"dataset", p.Name, "partition", part.Label, "left", left.Round(time.Second).String())
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
	return s.delete(ctx, p, a, late, deleting, "they were staged, and not committed within stage_ttl")
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
