package landing

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/storage"
)

// A chunk is condemned before it is deleted. A commit that names a condemned chunk is refused,
// and a chunk that a running commit names is not condemned. So no commit makes a chunk visible
// that is being deleted, and no lock is held while the storage is asked.

// deleting is how many staged chunks are deleted at a time.
const deleting = 16

// name protects the chunks of a commit until unname is called.
func (s *Service) name(a *stored, chunks []chunk.Locator) (unname func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range chunks {
		if _, condemned := a.condemned[l.Key]; condemned {
			return nil, fmt.Errorf("%w: chunk %s is being deleted, because its request failed, it was not committed in time, or its records are not needed any more: stage it again", ErrRefused, l.Key)
		}
	}
	for _, l := range chunks {
		a.named[l.Key]++
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, l := range chunks {
			if a.named[l.Key]--; a.named[l.Key] == 0 {
				delete(a.named, l.Key)
			}
		}
	}, nil
}

// condemn says whether the caller may delete a chunk: no commit names it, and nobody else
// deletes it. s.mu is held.
func (a *stored) condemn(key string) bool {
	if a.named[key] > 0 || a.condemned[key] {
		return false
	}
	a.condemned[key] = true
	return true
}

func (s *Service) condemn(a *stored, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.condemn(key)
}

// leave ends the caller's right to delete chunks. Those that are not deleted stay condemned,
// because a deletion without an answer may still happen.
func (s *Service) leave(a *stored, what []storage.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range what {
		if a.condemned[o.Key] {
			a.condemned[o.Key] = false
		}
	}
}

// report counts what was deleted.
type report struct{ chunks, bytes atomic.Int64 }

func (r *report) add(bytes int64) {
	r.chunks.Add(1)
	r.bytes.Add(bytes)
}

func (s *Service) tell(p *place, r *report, why string) {
	if n := r.chunks.Load(); n > 0 {
		s.log.Info("chunks of pushed records are deleted", "dataset", p.Name, "chunks", n, "bytes", r.bytes.Load(), "because", why)
	}
}

// delete deletes chunks that the caller has condemned, several at a time.
func (s *Service) delete(ctx context.Context, p *place, a *stored, what []storage.Object, why string) error {
	defer s.leave(a, what)
	var told report
	defer func() { s.tell(p, &told, why) }()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(deleting)
	for _, o := range what {
		if ctx.Err() != nil {
			break // one of them failed
		}
		g.Go(func() error {
			deleted, err := s.deleteOne(ctx, a, o)
			if deleted {
				told.add(o.Size)
			}
			return err
		})
	}
	return g.Wait()
}

// deleteOne deletes a chunk and gives its bytes back. A chunk that this process has not counted may
// have been deleted before it began, so deleteOne looks whether it is there.
func (s *Service) deleteOne(ctx context.Context, a *stored, o storage.Object) (deleted bool, err error) {
	s.mu.Lock()
	_, staged := a.staged[o.Key]
	counted := staged || a.doubtful[o.Key] || a.counts(o.Key)
	s.mu.Unlock()
	if !counted {
		_, err := s.store.Stat(ctx, o.Key)
		counted = err == nil
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return false, err
		}
	}
	if counted {
		s.mu.Lock()
		a.doubtful[o.Key] = true // until there is an answer
		s.mu.Unlock()
		if err := s.store.Delete(ctx, o.Key); err != nil {
			return false, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(a.doubtful, o.Key)
	delete(a.condemned, o.Key)
	a.unstage(o.Key)
	delete(a.visible, sumOf(o.Key))
	if counted {
		a.bytes -= o.Size
	}
	return counted, nil
}

// drop deletes the chunks of a request that failed: nobody has their locators. Chunks that a
// commit names or has made visible stay. Run deletes those that cannot be deleted now.
func (s *Service) drop(p *place, all []chunk.Locator) {
	a, err := s.account(s.life, p.stream)
	if err != nil || len(all) == 0 {
		return // without an account nothing was staged
	}
	var mine []storage.Object
	s.mu.Lock()
	for _, l := range all {
		if _, staged := a.staged[l.Key]; staged && a.condemn(l.Key) {
			mine = append(mine, storage.Object{Key: l.Key, Size: l.Size})
		}
	}
	s.mu.Unlock()
	s.warn(s.life, s.delete(s.life, p, a, mine, "the request that brought them failed, or its caller has gone")) // though its caller may be gone
}
