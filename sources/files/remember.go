package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// With files.remember, the names of old files in a folder that grows are forgotten, so that
// neither memory nor the ledger grows for ever. A forgotten file may still lie in the folder.
// The low mark makes sure that it is not read again.

// lowMark says which names a look skips unless they are remembered: names that sort before
// Name, and names of files that were modified before Time. Example with files.remember 168h:
// the newest file came on the 20th, so Time is the 13th, and a file that was modified on the
// 12th is skipped. The mark never goes back. Each segment carries the mark that was valid when
// it was listed. A name is forgotten only if the mark of the ledger's last segment skips it.
// The last segment is never forgotten; if any segment is forgotten, each checkpoint lists the
// last one too. So a process that goes on from the ledger or from a checkpoint has a mark that
// is high enough.
//
// The mark never skips a file that a look has found and that is not listed yet. It moves only
// between two looks of one process, and the segments of a look carry the mark of that look. A
// process may die while it lists the files of a look. The next process then begins with the
// mark of that look, or with a lower one, and finds the other files again.
type lowMark struct {
	Time int64 // ns since 1970
	Name string
	Edge int64 // all forgotten files came before this time, ns since 1970
}

// none: no name is skipped.
func (m *lowMark) none() bool { return m.Time == 0 && m.Name == "" }

// name is what is known of a file that was taken.
type name struct {
	mark mark
	time int64  // when the file came, as far as it shows: ns since 1970; 0: not known
	look uint32 // the last one that saw the file; noted for files.retain alone
}

// What happens to a name that sorts before names that were forgotten.
const (
	lateRead = "read" // it is read, if its file is young enough
	lateSkip = "skip" // it is not read
)

const (
	// lateEvery is how often a look sees names before the low mark too, to log the late ones.
	lateEvery = time.Hour
	// manyNames: from so many names on, the log has a hint.
	manyNames = 100_000
)

// edge is the time before which names are forgotten. The time of a file in the future does not
// count.
func (s *Source) edge(now time.Time) int64 {
	g := &s.list.growing
	return min(g.newest, g.ages(now).UnixNano()) - int64(s.spec.Remember)
}

// timeOf is when a file came. If that is not known (an older version listed it on S3), it is
// the start of this process, until a look shows the time.
func (g *growing) timeOf(n name) int64 {
	if n.time == 0 {
		return g.wall.UnixNano()
	}
	return n.time
}

// rise moves the low mark up. It is called when all files of earlier looks are listed.
func (s *Source) rise(now time.Time) {
	g := &s.list.growing
	if s.spec.Remember == 0 || g.looked.IsZero() || g.newest == 0 {
		return
	}
	edge := s.edge(now)
	if w := g.waits; w.any && w.came <= edge {
		if edge = w.came; !g.held {
			g.held = true
			s.log.Warn("old names are not forgotten, because a file waits to be complete since before them; complete it, or move it away", "file", w.old)
		}
	}
	if edge <= g.low.Edge {
		return
	}
	g.low.Edge = edge
	if s.spec.Late != lateSkip {
		g.low.Time = max(g.low.Time, edge)
		return
	}
	first, any := g.waits.name, g.waits.any // of the names that are not old
	for text, seen := range g.hollow {      // it is looked into again when it has changed
		if s.cameOf(seen) >= edge && (!any || text < first) {
			first, any = text, true
		}
	}
	for text, n := range g.taken {
		if g.timeOf(n) >= edge && (!any || text < first) {
			first, any = text, true
		}
	}
	if any {
		g.low.Name = max(g.low.Name, first)
	}
}

// beyond returns an error if the clock of this machine was once so far ahead that files which
// come now would be skipped.
func (s *Source) beyond(now time.Time) error {
	g := &s.list.growing
	if g.low.Time == 0 || g.low.Edge < g.ages(now).UnixNano() {
		return nil
	}
	return fmt.Errorf("this machine's clock was more than files.remember (%v) ahead when files were listed: files that come before %s would not be read. Delete the dataset and apply it again, or wait until then",
		s.spec.Remember, time.Unix(0, g.low.Edge).UTC().Format(time.RFC3339))
}

// waiting are the files of a look that are not complete yet.
type waiting struct {
	any  bool
	name string // that sorts first
	came int64  // when the oldest one came
	old  string // its name
}

// wait notes a file that is not complete: the mark must not skip it.
func (l *look) wait(name string, as func() (sighting, error)) error {
	if l.s.spec.Remember == 0 {
		return nil
	}
	seen, err := as()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// A mark is compared with the time of modification or with a later one.
	w, came := &l.waits, seen.modified.UnixNano()
	if !w.any || name < w.name {
		w.name = name
	}
	if !w.any || came < w.came {
		w.came, w.old = came, name
	}
	w.any = true
	return nil
}

// passes reports whether a look skips a name that is not remembered.
func (l *look) passes(name string, as func() (sighting, error)) (bool, error) {
	g := &l.s.list.growing
	below := name < g.low.Name
	switch {
	case !below && g.low.Time == 0:
		return false, nil
	case below && !l.whole:
		return true, nil
	}
	seen, err := as()
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if !below && seen.modified.UnixNano() >= g.low.Time {
		return false, nil
	}
	if came := l.s.cameOf(seen); came >= g.low.Edge && came > g.late.before {
		l.late = max(l.late, came)
		l.tellLate(name, below)
	}
	return true, nil
}

// late says which late files the log has named: those that came up to before.
type late struct {
	before int64 // ns since 1970
	told   int
}

func (l *look) tellLate(name string, below bool) {
	g := &l.s.list.growing
	why := "its time of modification is older than files.remember allows"
	if below {
		why = "its name sorts before names that are forgotten already (files.late: skip)"
	}
	if g.late.told++; g.late.told < toldMost {
		l.s.log.Warn("a file came late and is not read, or something of a file that was read has changed, such as its rights; if it is late, put it there again: as a new file, under a new name",
			"file", name, "why", why)
	} else if g.late.told == toldMost {
		l.s.log.Warn("more files came late and are not read; they are not named any more", "file", name)
	}
}

// cameOf is when a file came to its name, as far as that is known. On this machine nobody can
// set that time back, so the log can tell of a late file that was moved here with an old time
// of modification.
func (s *Source) cameOf(seen sighting) int64 { return s.came(seen.modified.UnixNano(), seen.touched) }

func cameLast(modified, touched int64) int64 { return max(modified, touched) }

// Forget forgets the names of old files (sources.Forgetter).
func (s *Source) Forget(ctx context.Context, p sources.PartitionID, segs []sources.Segment, below sources.Position) (before int64, needed []int64, err error) {
	if p != s.partition {
		return 0, nil, s.notMine(p)
	}
	if !s.spec.live() || len(segs) == 0 {
		return 0, nil, nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	last, end := len(segs)-1, 0 // end: of the settled segments
	l, err := decodeLocator(segs[last].Locator)
	if err != nil {
		return 0, nil, err
	}
	low := l.Low
	if low.none() || s.list.growing.looked.IsZero() { // the times of objects are known only after a look
		return 0, nil, nil
	}
	for end < last && (sources.Position{Segment: segs[end].ID, Offset: segs[end].End}).Compare(below) <= 0 {
		end++
	}
	// A file whose later segments are needed, or are not listed yet, is needed.
	needs := map[string]bool{s.list.current.name: true, segs[end].Name: true}
	var gone []string
	for name := range s.list.known {
		needs[name] = true
	}
	for _, g := range segs[:end] {
		if before = g.ID + 1; len(g.Locator) == 0 {
			continue
		}
		need, known := needs[g.Name]
		if !known {
			if need, err = s.remembers(ctx, g.Locator, low); err != nil && ctx.Err() != nil {
				return 0, nil, err
			} else if err != nil { // this file cannot be looked at now; the others can be forgotten
				need = true
			}
			if needs[g.Name] = need; !need {
				gone = append(gone, g.Name)
			}
		}
		if need {
			needed = append(needed, g.ID)
		}
	}
	for _, name := range gone {
		delete(s.list.growing.taken, name)
	}
	return before, needed, nil
}

// remembers reports whether the name of a segment's file must stay: because the low mark does
// not skip the file as it is now, or because files.retain will delete the file.
func (s *Source) remembers(ctx context.Context, loc []byte, low lowMark) (bool, error) {
	l, err := decodeLocator(loc)
	if err != nil || s.deletes(l.Path) {
		return true, err
	}
	if l.Path < low.Name {
		return false, nil
	}
	if low.Time == 0 {
		return true, nil
	}
	n, known := s.list.growing.taken[l.Path]
	if !known {
		n.time = l.came()
	}
	if s.list.growing.timeOf(n) >= low.Time {
		return true, nil
	}
	if s.bucket != nil {
		return false, nil // each look shows its time
	}
	now, err := s.see(ctx, l.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && s.cameOf(now) >= low.Time, err
}

// came is when the file of a segment came; 0: not known.
func (l *locator) came() int64 {
	if l.Came == 0 {
		return l.Identity.Modified
	}
	return l.Came
}

// carry notes in a locator what the next process must know.
func (s *Source) carry(l *locator, st stamp) {
	g := &s.list.growing
	came := s.came(st.Modified, st.Touched)
	if st.Tag != "" { // this answer has whole seconds, and a page of names has more
		came += int64(time.Second)
	}
	g.newest = max(g.newest, came)
	g.taken[l.Path] = name{mark: markOf(st.Size, st.Modified, st.Tag), time: came, look: g.looks}
	if s.spec.Remember > 0 || !g.low.none() {
		l.Low, l.Came = g.low, came
		if came == 0 { // it would not be written
			l.Came = 1
		}
	}
}

// forgotten is the error for records of a file whose name is forgotten.
func (s *Source) forgotten(r sources.Range) error {
	return &sources.Truncated{Lost: r, Name: string(s.partition),
		Err: errors.New("the name of the file is forgotten (files.remember). It was read, and no kept checkpoint needed it. To read it again, delete the dataset and apply it again")}
}

// beforeLow reports whether all names in a folder sort before a name.
func beforeLow(dir, low string) bool {
	return dir != "." && dir+"/" < low && !strings.HasPrefix(low, dir+"/")
}

func (f *Spec) checkRemember(c *dataset.Check) {
	switch {
	case f.Remember == 0:
		if f.Late != "" {
			c.Fail("files.late", f.Late, "goes with files.remember", "remove it, or set files.remember")
		}
		return
	case f.Remember < leastRemember:
		c.Fail("files.remember", f.Remember.String(), "is too short", "at least "+leastRemember.String()+"; a week or more is usual")
	case f.Remember < 2*f.Rest:
		c.Fail("files.remember", f.Remember.String(), "is too short for files.rest "+f.Rest.String(), "at least twice as long")
	}
	c.Among("files.late", f.Late, lateRead, lateSkip)
}
