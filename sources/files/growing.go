package files

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/headrace/headrace/sources"
)

// A folder that grows (files.end: never) is looked through again and again (look.go). Each
// file is listed once, when it is complete. Files that one look finds are listed in the
// order of their paths, after all that earlier looks found: a file whose name sorts before
// those is late, and is read like any other.

// growing is what is known between two looks. Whoever uses it holds Source.turn.
type growing struct {
	taken  map[string]name     // names that are listed, or are in lister.files; old ones are forgotten (remember.go)
	young  map[string]sighting // names that are not complete yet
	hollow map[string]sighting // names of files that were looked into and had no record
	looked time.Time           // the last look; zero: none
	again  again               // which of the taken are looked at again
	low    lowMark             // which names are passed over
	waits  waiting             // in the last look
	newest int64               // when the newest file came that was taken, ns since 1970; 0: none was
	whole  time.Time           // the last look at names before the low mark
	late   late
	looks  uint32 // how many there were
	full   uint32 // the last look that saw every remembered name that is there; 0: there was none
	// hinted: the log has the hint about many names. held: it has the warning about a file that
	// waits.
	hinted, held bool
	// When growing began, by the wall clock and by the monotonic one.
	wall, began time.Time
}

// sighting is what a file looked like, and since when.
type sighting struct {
	size     int64
	modified time.Time
	touched  int64  // ns since 1970, where the place knows it (touched_linux.go)
	tag      string // of an object; its time of modification is exact in one answer and cut in another
	since    time.Time
}

// same reports whether a file has not changed.
func (g sighting) same(was sighting) bool {
	return g.size == was.size && g.tag == was.tag && (g.tag != "" || g.modified.Equal(was.modified))
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

// temporary reports whether a name says that its file is not complete, or no data. A
// pattern such as dt=*/* matches _SUCCESS too.
func temporary(name string) bool {
	base := path.Base(name)
	if hidden(base) {
		return true
	}
	for _, end := range inProgress {
		if strings.HasSuffix(base, end) {
			return true
		}
	}
	return strings.Contains(base, ".inprogress.") // Flink: part-0-0.inprogress.<id>
}

// grow moves the files that an earlier process has listed to their end from the lister to
// taken.
func (s *Source) grow() {
	g := &s.list.growing
	g.taken, g.young, g.hollow = map[string]name{}, map[string]sighting{}, map[string]sighting{}
	g.began = time.Now()
	g.wall = g.began.Round(0)
	for path, was := range s.list.known {
		g.newest = max(g.newest, was.came)
		if was.done {
			g.taken[path] = name{mark: markOf(was.id.Size, was.id.Modified, was.id.Tag), time: was.came}
			delete(s.list.known, path)
		}
	}
	s.list.found = true
}

// listGrowing is Segments of a folder that grows. It returns the segments that there are now.
func (s *Source) listGrowing(ctx context.Context, after int64, most int) ([]sources.Segment, error) {
	s.forget(after)
	s.deleting.begin()
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

// soFar returns the listed segments. It returns the error only if there are none; otherwise the
// next call meets it again.
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

// noRecord notes a file without a record. Its writer may have opened it and written nothing
// yet, so it is looked into again when it has changed.
func (s *Source) noRecord(name string, st stamp) {
	s.log.Debug("file has no record", "file", name)
	if g := &s.list.growing; s.spec.live() {
		delete(g.taken, name)
		g.hollow[name] = sighting{size: st.Size, modified: time.Unix(0, st.Modified), tag: st.Tag}
	}
}

// ages returns the time of now that the age of files is computed with. If the wall clock is set
// forward, this time does not jump, so a file that is being written does not become complete.
func (g *growing) ages(now time.Time) time.Time {
	if steady := g.wall.Add(now.Sub(g.began)); steady.Before(now) {
		return steady
	}
	return now
}
