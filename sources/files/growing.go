package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/headrace/headrace/sources"
)

// A folder that grows (files.end: never) is looked through again and again. Each file is
// listed once, when it is complete. Files that one look finds are listed in the order of
// their paths, after all that earlier looks found: a file whose name sorts before those is
// late, and is read like any other.

// growing is what is known between two looks. Whoever uses it holds Source.turn.
type growing struct {
	taken  map[string]struct{} // names that are listed, or are in lister.files
	young  map[string]sighting // names that are not complete yet
	hollow map[string]sighting // names of files that were looked into and had no record
	looked time.Time           // the last look; zero: none
	// When growing began, by the wall clock and by the monotonic one.
	wall, began time.Time
}

// sighting is a file as it was, and since when.
type sighting struct {
	size     int64
	modified time.Time
	since    time.Time
}

const endNever = "never"

// What makes a file of a growing folder complete.
const (
	completeRest    = "rest"    // it has not changed for files.rest
	completeSuccess = "success" // its folder, or one above it, holds _SUCCESS
	completeRenamed = "renamed" // it is there: writers rename files to their names
)

func (f *Spec) live() bool { return f.End == endNever }

// inProgress are the ends of names that writers give to files that are not complete.
var inProgress = []string{".tmp", ".temp", ".part", ".partial", ".inprogress", ".pending", ".crdownload", "._COPYING_", "~"}

// temporary reports whether a name says that its file is not complete.
func temporary(name string) bool {
	base := path.Base(name)
	for _, end := range inProgress {
		if strings.HasSuffix(base, end) {
			return true
		}
	}
	return strings.Contains(base, ".inprogress.") // Flink: part-0-0.inprogress.<id>
}

// grow moves what an earlier process listed to its end out of the lister.
func (s *Source) grow() {
	g := &s.list.growing
	g.taken, g.young, g.hollow = map[string]struct{}{}, map[string]sighting{}, map[string]sighting{}
	g.began = time.Now()
	g.wall = g.began.Round(0)
	for name, was := range s.list.known {
		if was.done {
			g.taken[name] = struct{}{}
			delete(s.list.known, name)
		}
	}
	s.list.found = true
}

// listGrowing is Segments of a folder that grows: it gives what there is.
func (s *Source) listGrowing(ctx context.Context, after int64, most int) ([]sources.Segment, error) {
	s.forget(after)
	for {
		n, _ := s.count(after)
		if n >= most {
			return s.listed(after, most), nil
		}
		if s.list.current.f == nil && s.list.next == len(s.list.files) {
			now := time.Now()
			if now.Sub(s.list.growing.looked) < time.Duration(s.spec.Refresh) {
				return s.listed(after, n), nil
			}
			if err := s.look(ctx, now); err != nil {
				return s.soFar(after, n, err)
			}
			continue
		}
		begun := s.list.current.f != nil
		err := s.listMore(ctx)
		if !begun && errors.Is(err, fs.ErrNotExist) {
			name := s.list.files[s.list.next]
			s.log.Warn("a file was removed before it was listed; its records are not read unless it comes back", "file", name)
			delete(s.list.growing.taken, name)
			s.list.next++
			continue
		}
		if err != nil {
			return s.soFar(after, n, err)
		}
	}
}

// soFar gives what is listed, and the error only if that is nothing: the next call meets it
// again.
func (s *Source) soFar(after int64, n int, err error) ([]sources.Segment, error) {
	if n > 0 {
		return s.listed(after, n), nil
	}
	return nil, err
}

// forget drops segments that the caller has. The last one stays: the next number follows it.
func (s *Source) forget(after int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.search(after); i > 1 {
		s.segments = append([]sources.Segment(nil), s.segments[i-1:]...)
	}
}

// look finds the files that are complete and not listed.
func (s *Source) look(ctx context.Context, now time.Time) error {
	g := &s.list.growing
	names, err := s.expand(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		// Something was renamed or removed while it was looked at.
		return &sources.Temporary{Err: err, Backoff: retryAfter}
	}
	if err != nil {
		return err
	}
	g.looked = now
	s.list.files, s.list.next = s.list.files[:0], 0
	young, hollow := map[string]sighting{}, map[string]sighting{}
	marked := map[string]bool{}
	for _, name := range names {
		if _, again := g.taken[name]; again || temporary(name) {
			continue
		}
		if was, ok := g.hollow[name]; ok && s.rests(name, was) {
			hollow[name] = was
			continue
		}
		done, err := s.isComplete(name, now, young, marked)
		if err != nil {
			return err
		}
		if done {
			g.taken[name] = struct{}{}
			s.list.files = append(s.list.files, name)
		}
	}
	g.young, g.hollow = young, hollow
	return s.goOn()
}

// noRecord notes a file without a record. Its writer may have opened it and written nothing
// yet, so it is looked into again when it has changed.
func (s *Source) noRecord(name string, st stamp) {
	s.log.Debug("file has no record", "file", name)
	if g := &s.list.growing; s.spec.live() {
		delete(g.taken, name)
		g.hollow[name] = sighting{size: st.Size, modified: time.Unix(0, st.Modified)}
	}
}

// rests reports whether a file is as it was.
func (s *Source) rests(name string, was sighting) bool {
	info, err := s.root.Stat(name)
	return err == nil && info.Size() == was.size && info.ModTime().Equal(was.modified)
}

// ages is the time by which files grow old. A wall clock that is set forward makes no file
// complete that is being written.
func (g *growing) ages(now time.Time) time.Time {
	if steady := g.wall.Add(now.Sub(g.began)); steady.Before(now) {
		return steady
	}
	return now
}

// goOn puts a file first that an earlier process listed in part.
func (s *Source) goOn() error {
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
		if _, err := s.root.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %s was removed after it was listed to %d: bring it back, or delete the dataset", s.partition, path.Join(s.spec.Root, name), was.end)
		}
	}
	return nil
}

// isComplete decides about one file, and notes it in young if it has to wait.
func (s *Source) isComplete(name string, now time.Time, young map[string]sighting, marked map[string]bool) (bool, error) {
	switch s.spec.Complete {
	case completeRenamed:
		return true, nil
	case completeSuccess:
		return s.succeeded(path.Dir(name), marked)
	}
	info, err := s.root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, s.fileError(name, err)
	}
	seen := sighting{info.Size(), info.ModTime(), now}
	if was, ok := s.list.growing.young[name]; ok && was.size == seen.size && was.modified.Equal(seen.modified) {
		seen.since = was.since
	}
	// The second rule is for clocks of writers that are ahead of ours.
	rest := time.Duration(s.spec.Rest)
	if s.list.growing.ages(now).Sub(seen.modified) >= rest || now.Sub(seen.since) >= rest {
		return true, nil
	}
	young[name] = seen
	return false, nil
}

// succeeded reports whether a folder, or one above it in the root, holds _SUCCESS.
func (s *Source) succeeded(dir string, marked map[string]bool) (bool, error) {
	if done, known := marked[dir]; known {
		return done, nil
	}
	_, err := s.root.Stat(path.Join(dir, "_SUCCESS"))
	done := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, s.fileError(path.Join(dir, "_SUCCESS"), err)
	}
	if !done && dir != "." {
		if done, err = s.succeeded(path.Dir(dir), marked); err != nil {
			return false, err
		}
	}
	marked[dir] = done
	return done, nil
}
