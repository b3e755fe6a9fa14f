package files

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
)

// lister turns files into segments, one step a call, so that a listing never
// holds more than names and one open file. Whoever uses it holds Source.turn.
type lister struct {
	found bool
	files []string // sorted; those from next on are not listed yet
	next  int
	known map[string]listedFile // listed by an earlier process, all or in part
	// current is the file that is being cut into segments: indexed, or compressed.
	current openList
	growing growing // files.end: never
}

// listedFile says how far an earlier process has listed a file.
type listedFile struct {
	end  int64
	size int64 // of the whole file: bytes, or rows
	id   identity
	came int64 // when the file came, ns since 1970; 0: not known
	done bool  // all of it is listed
}

type openList struct {
	f     file // for its stamp
	data  content
	name  string
	stamp stamp
	loc   locator // of its segments, without their borders
	at    int64   // next segment's start
}

func (o *openList) close() {
	if o.data != nil {
		_ = o.data.Close()
	}
	*o = openList{}
}

// resume takes over the segments that were numbered before.
func (s *Source) resume(known []sources.Segment) error {
	s.segments = slices.Clone(known)
	slices.SortFunc(s.segments, func(a, b sources.Segment) int {
		return sources.Position{Segment: a.ID}.Compare(sources.Position{Segment: b.ID})
	})
	s.list.known = make(map[string]listedFile, len(known))
	for i, g := range s.segments {
		if i > 0 && s.segments[i-1].ID == g.ID {
			return fmt.Errorf("%s: segment %d is known twice", s.partition, g.ID)
		}
		if s.spec.live() && g.Sealed && len(g.Locator) == 0 {
			continue // its name is forgotten
		}
		l, err := decodeLocator(g.Locator)
		if err != nil {
			return fmt.Errorf("%s: segment %d, %s: %w", s.partition, g.ID, g.Name, err)
		}
		s.list.growing.low = l.Low
		if l.Root != s.spec.Root {
			return fmt.Errorf("%s: segment %d, %s, was listed under root %s, and the dataset's root is now %s; delete the dataset and apply it again",
				s.partition, g.ID, g.Name, l.Root, s.spec.Root)
		}
		was := listedFile{end: max(l.End, s.list.known[l.Path].end), size: l.Identity.Size, id: l.Identity, came: l.came()}
		was.done = was.end == was.id.Size || !s.framing.Kind.indexed()
		if l.Rows {
			was.size = l.Plain
		}
		if l.Codec != noCodec || l.Rows {
			was.done = was.end == l.Plain
		}
		s.list.known[l.Path] = was
	}
	return nil
}

// search gives the index of the first segment with ID > after. s.mu is held.
func (s *Source) search(after int64) int {
	return sort.Search(len(s.segments), func(i int) bool { return s.segments[i].ID > after })
}

func (s *Source) findFiles(ctx context.Context) error {
	if s.list.found {
		return nil
	}
	names, err := s.names(ctx)
	if err != nil {
		return err
	}
	s.list.files, s.list.found = names, true
	s.log.Debug("files found", "count", len(names), "root", s.spec.Root)
	return nil
}

// names gives all names of files on this machine, or the first of those in a bucket.
func (s *Source) names(ctx context.Context) ([]string, error) {
	if s.bucket == nil {
		return s.expand(ctx)
	}
	names, err := s.bucket.nextPage(ctx, s)
	return names, s.placeError(err)
}

// moreNames is called when all names that were found are listed. Names in a bucket come page by
// page.
func (s *Source) moreNames(ctx context.Context) (bool, error) {
	if s.bucket == nil || len(s.list.files) == 0 {
		return false, nil
	}
	names, err := s.names(ctx)
	if err != nil {
		return false, err
	}
	s.list.files, s.list.next = names, 0
	return len(names) > 0, nil
}

// listMore lists one more segment, or skips a file that has none, or finds that all is listed.
// After an error the next call tries the same again.
func (s *Source) listMore(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.findFiles(ctx); err != nil {
		return err
	}
	if s.list.current.f != nil {
		return s.listChunk(ctx)
	}
	if s.list.next == len(s.list.files) {
		if more, err := s.moreNames(ctx); more || err != nil {
			return err
		}
		s.mu.Lock()
		s.complete = true
		s.mu.Unlock()
		return nil
	}
	name := s.list.files[s.list.next]
	was, known := s.list.known[name]
	if known && was.done {
		s.list.next++ // it keeps its segments
		return nil
	}
	return s.listFile(ctx, name, was, known)
}

func (s *Source) listFile(ctx context.Context, name string, was listedFile, known bool) error {
	f, err := s.openFile(ctx, name)
	if err != nil {
		return err
	}
	during(f, ctx)
	var data content = &plain{file: f}
	keep := false
	defer func() {
		if !keep {
			_ = data.Close()
		}
	}()
	l, st, err := s.identify(ctx, f, name)
	if err != nil {
		return err
	}
	if s.spec.live() {
		s.carry(&l, st)
	}
	if s.framing.Kind.rows() && known && was.id != l.Identity {
		if err := s.unchanged(f, name, st); err != nil {
			return err
		}
		return s.otherFile(name, was)
	}
	if s.framing.Kind == Table {
		return s.listTable(f, l, st, was)
	}
	if s.framing.Kind == Container {
		return s.listContainer(ctx, f, l, st, was)
	}
	if data, err = s.firstContent(ctx, f, &l); err != nil {
		return err
	}
	if err := s.unchanged(f, name, st); err != nil {
		return err
	}
	if known && was.id != l.Identity {
		return s.otherFile(name, was)
	}
	start := max(l.Data, was.end)
	switch {
	case start >= data.Size() && s.framing.Kind != Whole, data.Size() == 0:
		if !known {
			s.noRecord(name, st)
		}
	case s.framing.Kind.indexed(), data.Size() == unknownSize:
		s.list.current = openList{f: f, data: data, name: name, stamp: st, loc: l, at: start}
		keep = true
	default:
		l.End = data.Size()
		s.add(name, start, l)
	}
	s.list.next++
	return nil
}

// otherFile is the error for a file that was listed in part and has been replaced since. The
// listed part may have been read already, and the new file does not continue it.
func (s *Source) otherFile(name string, was listedFile) error {
	return &sources.Changed{Range: sources.Range{Partition: s.partition, Start: was.end, End: was.size}, Name: name,
		What: "it is not the file that was listed in part before"}
}

// identify reads what a locator says of a file.
func (s *Source) identify(ctx context.Context, f file, name string) (locator, stamp, error) {
	st, err := f.stamp()
	if err != nil {
		return locator{}, stamp{}, s.fileError(name, err)
	}
	if s.bucket != nil {
		return locator{Root: s.spec.Root, Path: name, Identity: identityOf(st)}, st, nil
	}
	full := s.spec.Verify == "full"
	l := locator{Root: s.spec.Root, Path: name, HasFull: full,
		Identity: identity{Size: st.Size, Modified: st.Modified, Inode: st.Inode}}
	if l.Identity.Print, l.Full, err = s.verified.prints(ctx, f, st, full); err != nil {
		return l, st, s.fileError(name, err)
	}
	return l, st, nil
}

// unchanged returns an error if the file has changed since was. Then what was read may be of
// two states of it.
func (s *Source) unchanged(f file, name string, was stamp) error {
	now, err := f.stamp()
	if err == nil && (now.Size != was.Size || now.Tag != was.Tag || now.Tag == "" && now.Modified != was.Modified) {
		err = &sources.Temporary{Err: fmt.Errorf("the file is being written (size %d, was %d); it is listed when it rests", now.Size, was.Size), Backoff: retryAfter}
	}
	if err != nil {
		return s.fileError(name, err)
	}
	return nil
}

// listChunk adds the next segment of the file that is being cut.
func (s *Source) listChunk(ctx context.Context) error {
	c := &s.list.current
	during(c.f, ctx)
	var starts []int64
	var end int64
	var err error
	if s.framing.Kind.indexed() {
		starts, end, err = s.index(ctx, c)
	} else {
		end, err = s.measure(ctx, c)
	}
	if err != nil && (errors.As(err, new(*damage)) || errors.Is(err, storage.ErrChanged)) {
		// It may be a file that is written just now.
		if changed := s.unchanged(c.f, c.name, c.stamp); changed == nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if err := s.unchanged(c.f, c.name, c.stamp); err != nil {
		// Its borders may be wrong. If none of its segments is listed yet, the next call begins
		// again.
		if c.at == c.loc.Data {
			c.close()
			s.list.next--
			return err
		}
		return &sources.Changed{Range: sources.Range{Partition: s.partition, Start: c.at, End: c.loc.Identity.Size}, Name: c.name,
			What: "it was written to while it was listed"}
	}
	l := c.loc
	l.Starts, l.End = starts, end
	if l.Codec != noCodec && c.data.Size() != unknownSize {
		l.Plain = c.data.Size()
	}
	if end > c.at {
		s.add(c.name, c.at, l)
	} else if c.at == c.loc.Data {
		s.noRecord(c.name, c.stamp)
	}
	if c.at = end; end == c.data.Size() {
		c.close()
	}
	return nil
}

func (s *Source) add(name string, start int64, l locator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := int64(0)
	if n := len(s.segments); n > 0 {
		id = s.segments[n-1].ID + 1
	}
	s.segments = append(s.segments, sources.Segment{ID: id, Start: start, End: l.End, Sealed: true, Locator: l.encode(), Name: name})
}
