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
	whole    bool            // names before the low mark are looked at too
	waits    waiting
	late     int64  // when the newest file came that the log calls late
	no       uint32 // the number of this look
}

// look finds the files that are complete and not listed. After an error the next look finds
// the same.
func (s *Source) look(ctx context.Context, now time.Time) error {
	if err := s.beyond(now); err != nil {
		return err
	}
	s.rise(now)
	g := &s.list.growing
	g.looks++
	l := look{s: s, now: now, young: map[string]sighting{}, hollow: map[string]sighting{}, marked: map[string]bool{},
		whole: now.Sub(g.whole) >= lateEvery, late: g.late.before, no: g.looks}
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
	for _, found := range l.complete {
		g.taken[found] = name{mark: unlisted, look: l.no}
	}
	if l.whole || g.low.Name == "" {
		g.full = l.no
	}
	g.looked, g.young, g.hollow, g.waits, g.late.before = now, l.young, l.hollow, l.waits, l.late
	if l.whole {
		g.whole = now
	}
	if len(g.taken) >= manyNames && s.spec.Remember == 0 && !g.hinted {
		g.hinted = true
		s.log.Info("many names of files are remembered; with files.remember those of old files are forgotten", "names", len(g.taken))
	}
	s.list.files, s.list.next = l.complete, 0
	return s.goOn(ctx)
}

// folder looks through folders of this machine.
func (l *look) folder(ctx context.Context) error {
	names, err := l.s.expandFrom(ctx, l)
	if err != nil {
		return err
	}
	for _, name := range names {
		l.sees(name)
		if err := l.file(ctx, name, func() (sighting, error) { return l.s.see(ctx, name) }); err != nil {
			return err
		}
	}
	l.someAgain(ctx, names)
	return nil
}

// bucket looks through a bucket, page by page. A page has all that must be known of an object.
func (l *look) bucket(ctx context.Context) error {
	pages := l.s.newPager()
	if low := l.s.list.growing.low.Name; !l.whole && low != "" {
		pages.from = low[:len(low)-1] // a page begins after a name, and this one is wanted
		pages.after = pages.from
	}
	for {
		page, err := pages.page(ctx, l.s.bucket.objects)
		if err != nil || len(page) == 0 {
			return l.s.placeError(err)
		}
		for _, o := range page {
			as := func() (sighting, error) { return seenOf(o), nil } // sends no request
			l.sees(o.Key)
			l.replaced(o.Key, as)
			wanted, err := l.wants(o.Key, as)
			if err != nil {
				return err
			}
			if !wanted {
				continue
			}
			if err := l.file(ctx, o.Key, as); err != nil {
				return err
			}
		}
	}
}

// wants reports whether a name is remembered, or may be one that nobody has read.
func (l *look) wants(name string, as func() (sighting, error)) (bool, error) {
	if _, again := l.s.list.growing.taken[name]; again {
		return true, nil
	}
	if temporary(name) {
		return false, nil
	}
	past, err := l.passes(name, as)
	return !past, err
}

// file decides about one file that exists. as returns its present state.
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
		return nil
	}
	return l.wait(name, as)
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

// see returns the present state of a file. Errors: fs.ErrNotExist.
func (s *Source) see(ctx context.Context, name string) (sighting, error) {
	if s.bucket != nil {
		o, err := s.bucket.objects.Head(ctx, name)
		if err != nil {
			return sighting{}, s.fileError(name, gone(&placed{err}))
		}
		return seenOf(o), nil
	}
	info, err := s.root.Stat(name)
	if err != nil {
		return sighting{}, s.fileError(name, err)
	}
	return sighting{size: info.Size(), modified: info.ModTime(), touched: touched(info)}, nil
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
