package landing

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// Run deletes what nothing needs, until ctx ends: chunks whose records are settled and lie
// below what the oldest kept checkpoint needs, once they are older than `retain`; staged
// chunks that nobody committed within `stage_ttl`; streams of deleted datasets.
func (s *Service) Run(ctx context.Context) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	s.warn(ctx, s.orphans(ctx))
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.warn(ctx, s.clean(ctx))
		}
	}
}

func (s *Service) warn(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, serve.ErrStopped) {
		s.log.Warn("pushed records that nothing needs were not deleted; it is tried again", "error", err)
	}
}

// orphans deletes streams that no dataset has: a deletion was cut short. A stream has its
// name before its first chunk, so names are read after chunks.
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
		if _, err := chunk.ParseKey(o.Key); err != nil {
			continue // no chunk
		}
		if stream, _, _ := strings.Cut(o.Key, "/"); !live[stream] {
			if err := s.store.Delete(ctx, o.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Service) clean(ctx context.Context) error {
	all, err := s.srv.Datasets(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for i := range all {
		if l, ok := all[i].Spec.Landing(); ok && len(all[i].Partitions) > 0 {
			stream, err := streamOf(ctx, s.store, all[i].Name)
			if err == nil {
				err = s.cleanStream(ctx, &place{&all[i], l, stream})
			}
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func (s *Service) cleanStream(ctx context.Context, p *place) error {
	marks, err := s.srv.RetainMarks(ctx, p.ID)
	if err != nil {
		return err
	}
	// The marks may rest on acks that are not durable yet. This is answered when they are.
	if _, _, err := s.srv.Landed(ctx, p.ID, ""); err != nil {
		return err
	}
	needless, _, err := s.committed(ctx, p, marks)
	if err != nil {
		return err
	}
	stored, err := s.store.List(ctx, p.stream+"/", "", 0)
	if err != nil {
		return err
	}
	now := s.now()
	var gone, late []storage.Object
	for _, o := range stored {
		key, err := chunk.ParseKey(o.Key)
		switch {
		case err != nil:
		case needless[o.Key] && now.Sub(key.At) >= p.Retain:
			gone = append(gone, o)
		case now.Sub(key.At) > p.StageTTL:
			late = append(late, o)
		}
	}
	if err := s.delete(ctx, p, gone, "they are trained on, and no kept checkpoint needs them"); err != nil || len(late) == 0 {
		return err
	}
	// A commit that has checked such a chunk in time has it visible before this goes on;
	// any later one is refused.
	s.cleaning.Lock()
	defer s.cleaning.Unlock()
	_, committed, err := s.committed(ctx, p, nil)
	if err != nil {
		return err
	}
	staged := late[:0]
	for _, o := range late {
		if !committed[o.Key] {
			staged = append(staged, o)
		}
	}
	return s.delete(ctx, p, staged, "they were staged, and not committed within stage_ttl")
}

// committed are the keys of all chunks that are visible, and of those below the marks.
func (s *Service) committed(ctx context.Context, p *place, marks []sources.Mark) (below, all map[string]bool, err error) {
	below, all = map[string]bool{}, map[string]bool{}
	for _, part := range p.Partitions() {
		segs, err := s.srv.Segments(ctx, part.Number, -1, 0)
		if err != nil {
			return nil, nil, err
		}
		var mark sources.Position
		for _, m := range marks {
			if m.Partition == part.Source {
				mark = m.Position
			}
		}
		for _, g := range segs {
			l, _, err := chunk.ParseLocator(string(g.Locator))
			if err != nil {
				return nil, nil, err
			}
			all[l.Key] = true
			if (sources.Position{Segment: g.ID, Offset: g.End}).Compare(mark) <= 0 {
				below[l.Key] = true
			}
		}
	}
	return below, all, nil
}

func (s *Service) delete(ctx context.Context, p *place, what []storage.Object, why string) error {
	if len(what) == 0 {
		return nil
	}
	a, err := s.account(ctx, p.stream)
	if err != nil {
		return err
	}
	var bytes int64
	for _, o := range what {
		if err := s.store.Delete(ctx, o.Key); err != nil {
			return err
		}
		s.add(a, -o.Size)
		bytes += o.Size
	}
	s.log.Info("chunks of pushed records are deleted", "dataset", p.Name, "chunks", len(what), "bytes", bytes, "because", why)
	return nil
}
