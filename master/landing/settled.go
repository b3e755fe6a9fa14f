package landing

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// batch is how many chunks of a partition are deleted before it is asked again what must be
// retained. So a rewind that comes while thousands are being deleted finds all but a few.
const batch = 64

// partitionsAtOnce is how many partitions of a dataset have chunks deleted at a time.
const partitionsAtOnce = 16

// clearing is how far the chunks of one partition are deleted.
type clearing struct {
	part    serve.Partition
	deleted int64 // those of segments up to this one were deleted before
	next    int64 // those of segments up to this one are deleted by now
	due     []due // those that follow, at most a batch
	ended   bool  // no other one may be deleted now

	// Trim keeps the last segment that it trims. So a single located segment is no reason to trim.
	located, trim bool
}

// due is the chunk of a segment. Its key is empty if the chunk was deleted before.
type due struct {
	segment, end int64
	storage.Object
}

func (d *due) needed(x *clearing, marks []sources.Mark) bool {
	at := slices.IndexFunc(marks, func(m sources.Mark) bool { return m.Partition == x.part.Source })
	return at < 0 || (sources.Position{Segment: d.segment, Offset: d.end}).Compare(marks[at].Position) > 0
}

// cleanSettled deletes the first chunks of each partition, as many as nothing needs, and then
// has their segments trimmed. If it is cut short between the two, the next one finds no chunk
// and trims. Partitions are cleaned side by side. The chunks of one are deleted in their order:
// if a reader finds a chunk, it takes the later ones for stored too.
func (s *Service) cleanSettled(ctx context.Context, p *place, a *stored) error {
	marks, err := s.srv.RetainMarks(ctx, p.ID)
	if err != nil {
		return err
	}
	var all []*clearing
	for _, part := range p.Partitions() {
		deleted, known := a.deleted[part.Number]
		if !known {
			deleted = -1
		}
		all = append(all, &clearing{part: part, deleted: deleted, next: -1})
	}
	defer s.takeBack(p, a, all)
	var told report
	defer func() { s.tell(p, &told, "they are trained on, and no kept checkpoint needs them") }()
	for {
		more, any := false, false
		for _, x := range all {
			if err := s.find(ctx, p, a, x, marks); err != nil {
				return err
			}
			more = more || !x.ended
			any = any || len(x.due) > 0
		}
		if any {
			if marks, err = s.clear(ctx, p, a, all, &told); err != nil {
				return err
			}
		}
		if !more {
			return s.trim(ctx, p, all)
		}
	}
}

// find looks at the next segments of a partition, and condemns the chunks that nothing needs.
func (s *Service) find(ctx context.Context, p *place, a *stored, x *clearing, marks []sources.Mark) error {
	if x.ended {
		return nil
	}
	segs, err := s.srv.Segments(ctx, x.part.Number, x.next, batch)
	if err != nil {
		return err
	}
	x.ended = len(segs) < batch
	for _, g := range segs {
		x.trim = x.trim || x.located
		d := due{segment: g.ID, end: g.End}
		if d.needed(x, marks) {
			x.ended = true
			return nil
		}
		if len(g.Locator) > 0 { // else it was trimmed
			l, key, err := chunk.ParseLocator(string(g.Locator))
			if err != nil {
				return err
			}
			if g.ID > x.deleted {
				if age := s.now().Sub(key.At); age < p.Retain {
					s.announce(p, &x.part, x.deleted, p.Retain-age)
					x.ended = true
					return nil
				}
				if !s.condemn(a, l.Key) {
					x.ended = true // the next round deletes it
					return nil
				}
				d.Object = storage.Object{Key: l.Key, Size: l.Size}
			}
			x.located = true
		}
		x.due = append(x.due, d)
	}
	return nil
}

// clear deletes what find has found, and returns the retain marks as they are now. The chunks are
// noted as deleted first: from then on a rewind that needs them is refused. Then the marks are
// read again, because a rewind may have come before the note. It keeps what it needs.
func (s *Service) clear(ctx context.Context, p *place, a *stored, all []*clearing, told *report) ([]sources.Mark, error) {
	var found []serve.Deletion
	for _, x := range all {
		for _, d := range x.due {
			if d.Key != "" {
				found = append(found, serve.Deletion{Source: string(x.part.Source), Segment: d.segment, Low: d.end})
			}
		}
	}
	if len(found) > 0 {
		s.srv.NoteDeleted(p.ID, found)
	}
	marks, err := s.srv.RetainMarks(ctx, p.ID)
	var g errgroup.Group
	g.SetLimit(partitionsAtOnce)
	for _, x := range all {
		if err != nil || len(x.due) == 0 {
			continue
		}
		g.Go(func() error { return s.clearPartition(ctx, a, x, marks, told) })
	}
	if failed := g.Wait(); err == nil {
		err = failed
	}
	s.takeBack(p, a, all)
	return marks, err
}

// clearPartition deletes the due chunks of one partition that the marks do not retain.
func (s *Service) clearPartition(ctx context.Context, a *stored, x *clearing, marks []sources.Mark, told *report) error {
	for len(x.due) > 0 {
		d := &x.due[0]
		if d.needed(x, marks) {
			x.ended = true
			return nil
		}
		if d.Key != "" {
			deleted, err := s.deleteOne(ctx, a, d.Object)
			if err != nil {
				return err
			}
			if deleted {
				told.add(d.Size)
			}
		}
		x.next, x.due = d.segment, x.due[1:]
	}
	return nil
}

// takeBack ends the right to delete what is still due, and takes back the notes about it. A
// chunk whose deletion has no answer may be deleted, so its note stays.
func (s *Service) takeBack(p *place, a *stored, all []*clearing) {
	var left []storage.Object
	var there []serve.Deletion
	s.mu.Lock()
	for _, x := range all {
		for _, d := range x.due {
			if d.Key == "" {
				continue
			}
			left = append(left, d.Object)
			if !a.doubtful[d.Key] {
				there = append(there, serve.Deletion{Source: string(x.part.Source), Segment: d.segment})
			}
		}
		x.due = nil
		a.deleted[x.part.Number] = max(x.deleted, x.next)
	}
	s.mu.Unlock()
	s.leave(a, left)
	if len(there) > 0 {
		s.srv.NoteDeleted(p.ID, there)
	}
}

// trim has the segments of deleted chunks trimmed.
func (s *Service) trim(ctx context.Context, p *place, all []*clearing) error {
	trimmed := false
	for _, x := range all {
		if !x.trim {
			continue
		}
		trimmed = true
		if err := s.srv.Trim(ctx, x.part.Number, x.next+1); err != nil {
			return err
		}
	}
	if !trimmed {
		return nil
	}
	return s.srv.ForgetTrimmed(ctx, p.ID)
}

// announce says once for each partition, before anything of it is deleted, from when on
// going back to the start misses records.
func (s *Service) announce(p *place, part *serve.Partition, deleted int64, left time.Duration) {
	s.mu.Lock()
	known := deleted >= 0 || s.announced[part.Number]
	s.announced[part.Number] = true
	s.mu.Unlock()
	if known {
		return
	}
	s.log.Info("pushed records that are trained on, and that no kept checkpoint needs, will be deleted: going back to the start then misses them; a longer landing.retain keeps them",
		"dataset", p.Name, "partition", part.Label, "left", left.Round(time.Second).String())
}
