package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
)

// look is one look through a folder that grows, on this machine or on S3.
type look struct {
	s        *Source
	now      time.Time
	complete []string // and not listed before, in order
	young    map[string]sighting
	hollow   map[string]sighting
	marked   map[string]bool // folders: whether they, or one above them, hold _SUCCESS
}

// look finds the files that are complete and not listed. After an error the next look finds
// the same.
func (s *Source) look(ctx context.Context, now time.Time) error {
	l := look{s: s, now: now, young: map[string]sighting{}, hollow: map[string]sighting{}, marked: map[string]bool{}}
	through := l.folder
	if s.bucket != nil {
		through = l.bucket
	}
	if err := through(ctx); errors.Is(err, fs.ErrNotExist) && s.bucket == nil {
		// Something was renamed or removed while it was looked at.
		return &sources.Temporary{Err: err, Backoff: retryAfter}
	} else if err != nil {
		return err
	}
	g := &s.list.growing
	for _, name := range l.complete {
		g.taken[name] = unlisted
	}
	g.looked, g.young, g.hollow = now, l.young, l.hollow
	s.list.files, s.list.next = l.complete, 0
	return s.goOn(ctx)
}

// folder looks through folders of this machine.
func (l *look) folder(ctx context.Context) error {
	names, err := l.s.expand(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := l.file(ctx, name, func() (sighting, error) { return l.s.see(ctx, name) }); err != nil {
			return err
		}
	}
	l.someAgain(ctx, names)
	return nil
}

// bucket looks through a bucket, page by page. A page says all that is asked of an object.
func (l *look) bucket(ctx context.Context) error {
	pages := newPager(l.s.spec.Paths)
	for {
		page, err := pages.page(ctx, l.s.bucket.objects)
		if err != nil || len(page) == 0 {
			return l.s.placeError(err)
		}
		for _, o := range page {
			l.replaced(o.Key, func() (sighting, error) { return seenOf(o), nil }) // asks nothing
			if err := l.file(ctx, o.Key, func() (sighting, error) { return seenOf(o), nil }); err != nil {
				return err
			}
		}
	}
}

// file decides about one file that is there. as says how it is now.
func (l *look) file(ctx context.Context, name string, as func() (sighting, error)) error {
	g := &l.s.list.growing
	if _, again := g.taken[name]; again || temporary(name) {
		return nil
	}
	if was, ok := g.hollow[name]; ok {
		if now, err := as(); err == nil && now.same(was) {
			l.hollow[name] = was
			return nil
		}
	}
	done, err := l.isComplete(ctx, name, as)
	if err != nil {
		return err
	}
	if done {
		l.complete = append(l.complete, name)
	}
	return nil
}

// isComplete decides about one file, and notes it in young if it has to wait.
func (l *look) isComplete(ctx context.Context, name string, as func() (sighting, error)) (bool, error) {
	switch l.s.spec.Complete {
	case completeRenamed:
		return true, nil
	case completeSuccess:
		return l.succeeded(ctx, path.Dir(name))
	}
	seen, err := as()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	g := &l.s.list.growing
	seen.since = l.now
	if was, ok := g.young[name]; ok && seen.same(was) {
		seen.since = was.since
	}
	// The second rule is for clocks of writers that are ahead of ours.
	rest := time.Duration(l.s.spec.Rest)
	if g.ages(l.now).Sub(seen.modified) >= rest || l.now.Sub(seen.since) >= rest {
		return true, nil
	}
	l.young[name] = seen
	return false, nil
}

// succeeded reports whether a folder, or one above it in the root, holds _SUCCESS.
func (l *look) succeeded(ctx context.Context, dir string) (bool, error) {
	if done, known := l.marked[dir]; known {
		return done, nil
	}
	_, err := l.s.see(ctx, path.Join(dir, "_SUCCESS"))
	done := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if !done && dir != "." {
		if done, err = l.succeeded(ctx, path.Dir(dir)); err != nil {
			return false, err
		}
	}
	l.marked[dir] = done
	return done, nil
}

// see asks the place how a file is now. Errors: fs.ErrNotExist.
func (s *Source) see(ctx context.Context, name string) (sighting, error) {
	if s.bucket != nil {
		o, err := s.bucket.objects.Head(ctx, name)
		if err != nil {
			return sighting{}, s.fileError(name, gone(err))
		}
		return seenOf(o), nil
	}
	info, err := s.root.Stat(name)
	if err != nil {
		return sighting{}, s.fileError(name, err)
	}
	return sighting{size: info.Size(), modified: info.ModTime()}, nil
}

func seenOf(o storage.Object) sighting {
	return sighting{size: o.Size, modified: o.Modified, tag: o.Tag}
}

// goOn puts a file first that an earlier process listed in part.
func (s *Source) goOn(ctx context.Context) error {
	for name, was := range s.list.known {
		for i, found := range s.list.files {
			if found == name {
				copy(s.list.files[1:i+1], s.list.files[:i])
				s.list.files[0] = name
				return nil
			}
		}
		if _, again := s.list.growing.taken[name]; again {
			continue
		}
		if _, err := s.see(ctx, name); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %s was removed after it was listed to %d: bring it back, or delete the dataset", s.partition, s.spec.Root+"/"+name, was.end)
		}
	}
	return nil
}
