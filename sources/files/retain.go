package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
)

// With files.retain, files of a folder that grows are deleted when nothing needs them any more.
// A deletion is not stored: the next look through the folder sees which files exist. So a
// process may die at any moment, and a deletion that was lost is made again. The name of a
// deleted file stays remembered, so a new file with this name is not read (replaced.go). Only
// files.remember forgets the name, and not before the file is gone.

const (
	deleteWithin = 5 * time.Second  // one call of Delete
	failedAgain  = 10 * time.Minute // a file that could not be deleted is tried again
	retriesMost  = 100              // of those that fail again in one call; others are tried later
	samplesMost  = 64               // of passed, within files.retain
)

// deleting is what is known about deletions between two calls of Delete.
type deleting struct {
	passed    passed
	within    time.Duration        // deleteWithin; tests have more time
	failed    map[string]time.Time // when a file could not be deleted
	told      int                  // of those, in the log
	announced bool
	unstored  bool // passed could not be stored
	// fresh: nothing of the dataset is listed yet, so stored samples are those of an earlier
	// dataset with its name.
	fresh bool
}

// newDeleting touches no file.
func newDeleting(f *Spec, cache, partition string, fresh bool) deleting {
	if f.Retain == 0 || !f.live() {
		return deleting{}
	}
	d := deleting{within: deleteWithin, failed: map[string]time.Time{}, fresh: fresh}
	if cache != "" {
		d.passed.file = filepath.Join(cache, "retain", fmt.Sprintf("%016x", xxhash.Sum64String(partition+"\x00"+f.Root)))
	}
	return d
}

// begin is called when the dataset is listed.
func (d *deleting) begin() {
	if d.fresh {
		d.passed.reset()
	}
	d.fresh = false
}

// sees notes that a file exists.
func (l *look) sees(name string) {
	if l.s.spec.Retain == 0 {
		return
	}
	if n, known := l.s.list.growing.taken[name]; known {
		n.look = l.no
		l.s.list.growing.taken[name] = n
	}
}

// there reports whether a file existed at the last look that looked for it.
func (g *growing) there(n name) bool { return n.look >= g.full }

// deletes reports whether files.retain will delete a file some day.
func (s *Source) deletes(name string) bool {
	g := &s.list.growing
	n, known := g.taken[name]
	return s.spec.Retain > 0 && known && n.mark != told && g.there(n)
}

// Delete deletes a file if two things are true (sources.Deleter): all its segments have been
// below the mark for files.retain, and the file came at least as long ago.
func (s *Source) Delete(ctx context.Context, p sources.PartitionID, segs []sources.Segment, below sources.Position, due func([]int64) (sources.Position, error)) (sources.Deletions, error) {
	var found sources.Deletions
	if p != s.partition {
		return found, s.notMine(p)
	}
	if s.spec.Retain == 0 || !s.spec.live() {
		return found, nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return found, ctx.Err()
	}
	g := &s.list.growing
	if g.full == 0 {
		return found, nil // it is not known which files exist
	}
	end := settled(segs, below)
	now, retain := g.ages(time.Now()).UnixNano(), int64(s.spec.Retain)
	err := s.deleting.passed.note(now, retain, segs, end)
	if err != nil && !s.deleting.unstored {
		s.log.Warn("it cannot be stored since when files are not needed; after a start of the master they stay for files.retain again", "error", err)
	}
	s.deleting.unstored = err != nil
	all := s.candidates(segs, end)
	round := deletion{s: s, began: time.Now(), now: now, left: s.spec.Retain}
	defer round.tell()
	var ids []int64
	for _, c := range all {
		if g.there(g.taken[c.name()]) && round.due(c) {
			ids = append(ids, c.ids()...)
		}
	}
	if len(ids) > 0 {
		slices.Sort(ids)
		mark, err := due(ids)
		if err != nil {
			return found, err
		}
		if mark.Compare(below) < 0 { // somebody has gone back
			end = settled(segs[:end], mark)
			_ = s.deleting.passed.note(now, retain, segs, end) // the next call tells an error
			all = s.candidates(segs, end)
		}
	}
	for _, c := range all {
		if g.there(g.taken[c.name()]) {
			round.file(ctx, c)
		}
		if !g.there(g.taken[c.name()]) {
			found.Gone = append(found.Gone, c.ids()...)
		}
	}
	found.More = round.more
	return found, round.err
}

// settled counts the segments that end at or before a mark.
func settled(segs []sources.Segment, below sources.Position) (end int) {
	for end < len(segs) && (sources.Position{Segment: segs[end].ID, Offset: segs[end].End}).Compare(below) <= 0 {
		end++
	}
	return end
}

// candidate is a file, or a part of it, that nothing needs.
type candidate struct {
	segs  []sources.Segment // that follow each other
	since int64             // since when the file has been there, and no part of it was needed
}

func (c candidate) name() string { return c.segs[0].Name }

func (c candidate) ids() (all []int64) {
	for _, g := range c.segs {
		all = append(all, g.ID)
	}
	return all
}

// candidates returns the candidates among the first end segments.
func (s *Source) candidates(segs []sources.Segment, end int) (all []candidate) {
	needed, inodes := s.stillRead(segs, end)
	last := lastOf(segs[:end])
	for from, to := 0, 0; from < end; from = to {
		name := segs[from].Name
		for to = from + 1; to < end && segs[to].Name == name && len(segs[to].Locator) > 0; {
			to++
		}
		n, known := s.list.growing.taken[name]
		if len(segs[from].Locator) == 0 || needed[name] || !known { // !known: it is not listed to its end
			continue
		}
		if there := s.list.growing.there(n); !there || !inodes.have(segs[from].Locator) {
			all = append(all, candidate{segs[from:to], max(s.list.growing.timeOf(n), s.deleting.passed.since(last[name]))})
		}
	}
	return all
}

// stillRead returns the names of files that are still needed: they have a segment that ends
// above the mark, or one that the ledger does not have yet, or they are listed in part. has are
// the inodes of the files of such segments, because a link gives a file a second name.
func (s *Source) stillRead(segs []sources.Segment, end int) (needed map[string]bool, has inodes) {
	needed, has = map[string]bool{s.list.current.name: true}, inodes{}
	for name := range s.list.known { // listed in part by an earlier process, and found again
		if slices.Contains(s.list.files[s.list.next:], name) {
			needed[name] = true
		}
	}
	for _, g := range segs[end:] { // the rest of a file may be listed after others
		needed[g.Name] = true
		has.add(g.Locator)
	}
	last := int64(-1)
	if n := len(segs); n > 0 {
		last = segs[n-1].ID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.segments[s.search(last):] {
		needed[g.Name] = true
		has.add(g.Locator)
	}
	return needed, has
}

// inodes are those of files of this machine. Devices are not compared: at worst, a file stays
// that could be deleted.
type inodes map[uint64]bool

func (i inodes) add(loc []byte) {
	if l, err := decodeLocator(loc); err == nil && l.Identity.Inode != 0 {
		i[l.Identity.Inode] = true
	}
}

func (i inodes) have(loc []byte) bool {
	if len(i) == 0 {
		return false
	}
	l, err := decodeLocator(loc)
	return err == nil && i[l.Identity.Inode]
}

// lastOf is each file's last segment.
func lastOf(segs []sources.Segment) map[string]int64 {
	last := make(map[string]int64, len(segs))
	for _, g := range segs {
		last[g.Name] = g.ID
	}
	return last
}

// deletion is one call of Delete.
type deletion struct {
	s       *Source
	began   time.Time
	now     int64 // ns since 1970
	retries int   // of files that failed before and again
	more    bool
	err     error // ends the round

	waits   int              // files that are not old enough
	left    dataset.Duration // until the first of them is
	next    string           // its name
	deleted int
	bytes   int64
	from    string // the first one that was deleted
	to      string // and the last one
}

// due reports whether the method file may delete a candidate.
func (d *deletion) due(c candidate) bool {
	s := d.s
	if s.list.growing.taken[c.name()].mark == told || s.spec.Retain > dataset.Duration(d.now-min(c.since, d.now)) {
		return false
	}
	at, failed := s.deleting.failed[c.name()]
	return !failed || time.Since(at) >= failedAgain
}

// file deletes the file of a candidate, which exists, if it is time.
func (d *deletion) file(ctx context.Context, c candidate) {
	s := d.s
	n, loc, since := s.list.growing.taken[c.name()], c.segs[len(c.segs)-1].Locator, c.since
	if d.err == nil {
		d.err = ctx.Err()
	}
	if n.mark == told || d.err != nil {
		return // another file has its name
	}
	l, err := decodeLocator(loc)
	if err != nil {
		d.err = fmt.Errorf("%s: %w", s.partition, err)
		return
	}
	if left := s.spec.Retain - dataset.Duration(d.now-min(since, d.now)); left > 0 {
		if d.waits++; left < d.left || d.next == "" {
			d.left, d.next = left, l.Path
		}
		return
	}
	at, failed := s.deleting.failed[l.Path]
	if failed && (time.Since(at) < failedAgain || d.retries == retriesMost) {
		return
	}
	if time.Since(d.began) > s.deleting.within {
		d.more = true
		return
	}
	came, err := s.delete(ctx, l, n.time)
	changed, isChanged := errors.AsType[*sources.Changed](err)
	temporary, isTemporary := errors.AsType[*sources.Temporary](err)
	switch {
	case ctx.Err() != nil:
		d.err = ctx.Err()
	case isTemporary && temporary.Away:
		d.err = err
	case isChanged:
		n.mark = told
		s.list.growing.taken[l.Path] = n
		s.log.Warn("a file that was read has changed since, or another one has its name: it is not deleted, and its new content is not read", "file", l.Path, "what", changed.What)
	case errors.Is(err, fs.ErrNotExist):
		d.gone(l.Path)
	case err != nil:
		if failed {
			d.retries++
		}
		d.failed(l.Path, err)
	case came > n.time: // somebody has touched it
		n.time = came
		s.list.growing.taken[l.Path] = n
	default:
		d.gone(l.Path)
		delete(s.deleting.failed, l.Path)
		if d.deleted++; d.from == "" {
			d.from = l.Path
		}
		d.to, d.bytes = l.Path, d.bytes+l.Identity.Size
		s.log.Debug("file is deleted", "file", l.Path)
	}
}

// gone: the next look may find the file again, and then it is deleted again.
func (d *deletion) gone(name string) {
	g := &d.s.list.growing
	n := g.taken[name]
	n.look = 0
	g.taken[name] = n
}

func (d *deletion) failed(name string, err error) {
	h := &d.s.deleting
	_, before := h.failed[name]
	if h.failed[name] = time.Now(); before {
		return
	}
	if h.told++; h.told < toldMost {
		d.s.log.Warn("a file that nothing needs any more cannot be deleted; it is tried again", "file", name, "error", err, "in", failedAgain.String())
	} else if h.told == toldMost {
		d.s.log.Warn("more files cannot be deleted; they are not named any more", "file", name, "error", err)
	}
}

// tell logs what was deleted, and before the first deletion what will be.
func (d *deletion) tell() {
	s := d.s
	if d.deleted > 0 {
		s.log.Info("files are deleted: they are trained on, no kept checkpoint needs them, and files.retain is over",
			"files", d.deleted, "bytes", d.bytes, "first", d.from, "last", d.to)
	}
	if d.waits > 0 && !s.deleting.announced && d.deleted == 0 {
		s.deleting.announced = true
		s.log.Info("files that are trained on, and that no kept checkpoint needs, will be deleted: going back to the start then misses them; a longer files.retain keeps them",
			"files", d.waits, "first", d.next, "left", time.Duration(d.left).Round(time.Second).String())
	}
}

// delete deletes a file if it is the one that was listed. It checks that directly before. If
// the file came later than noted, it stays, and came says when it came.
func (s *Source) delete(ctx context.Context, l *locator, noted int64) (came int64, err error) {
	if s.bucket != nil {
		came, err = s.deleteObject(ctx, l, noted)
	} else {
		came, err = s.deleteLocal(ctx, l, noted)
	}
	if err == nil && came <= noted {
		s.forgetPoints(l)
	}
	return came, err
}

// deleteObject: the request has the ETag as a condition.
func (s *Source) deleteObject(ctx context.Context, l *locator, noted int64) (came int64, err error) {
	now, err := s.see(ctx, l.Path)
	if err != nil {
		return 0, err
	}
	if what := l.Identity.differs(stamp{Tag: now.tag, Size: now.size}); what != "" {
		return 0, &sources.Changed{Name: l.Path, What: what}
	}
	if came = s.cameOf(now); came > noted {
		return came, nil
	}
	err = s.bucket.objects.Remove(ctx, l.Path, now.tag)
	if errors.Is(err, storage.ErrChanged) {
		return 0, &sources.Changed{Name: l.Path, What: "another object is in its place"}
	}
	if err != nil {
		return 0, s.fileError(l.Path, gone(&placed{err}))
	}
	return came, nil
}

// deleteLocal checks the file, then removes its name. No system call does both, so a file that
// takes the name in between is deleted.
func (s *Source) deleteLocal(ctx context.Context, l *locator, noted int64) (came int64, err error) {
	f, err := s.openPlanned(ctx, sources.Range{Partition: s.partition}, l)
	if _, gone := errors.AsType[*sources.Truncated](err); gone {
		return 0, fs.ErrNotExist
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	now, err := f.stamp()
	if err != nil {
		return 0, s.fileError(l.Path, err)
	}
	if came = s.came(now.Modified, now.Touched); came > noted {
		return came, nil
	}
	if err := s.unlink(f, l.Path); err != nil {
		return 0, s.fileError(l.Path, err)
	}
	return came, nil
}

// unlink removes the name of a file of this machine that is open as f. It refuses a name that
// is a symbolic link or lies below one: somebody else may need the file by its other name.
func (s *Source) unlink(f file, name string) error {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		is, err := s.root.Lstat(dir)
		if err != nil {
			return err
		}
		if is.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("lies below %s, which is a symbolic link; what lies below links is not deleted", dir)
		}
	}
	is, err := s.root.Lstat(name)
	if err != nil {
		return err
	}
	if is.Mode()&fs.ModeSymlink != 0 {
		return errors.New("is a symbolic link; links are not deleted")
	}
	was, err := f.(localFile).Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(is, was) || is.Size() != was.Size() || !is.ModTime().Equal(was.ModTime()) {
		return &sources.Changed{Name: name, What: "another file in its place"}
	}
	return s.root.Remove(name)
}

// forgetPoints removes the restart points of a file that is deleted.
func (s *Source) forgetPoints(l *locator) {
	if l.Codec == noCodec {
		return
	}
	p := s.pointsFor(l)
	s.pointsMu.Lock()
	delete(s.points, pointsKey{l.Codec, l.Identity})
	s.pointsMu.Unlock()
	if p.folder != "" {
		_ = os.RemoveAll(p.folder) // else they are trimmed with others
	}
}
