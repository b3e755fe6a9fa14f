package memsource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/sources"
)

// Source is one opening of a log.
type Source struct {
	log   *Log
	live  bool
	known map[string]sources.Segment // by locator
}

var (
	_ sources.Committer = (*Source)(nil)
	_ sources.Retainer  = (*Source)(nil)
	_ sources.Keeper    = (*Source)(nil)
)

// Open opens a log. known are the segments that were listed before.
func (l *Log) Open(live bool, known []sources.Segment) *Source {
	s := &Source{log: l, live: live, known: map[string]sources.Segment{}}
	for _, g := range known {
		s.known[string(g.Locator)] = g
	}
	return s
}

func (s *Source) Close() error { return nil }

// with runs do with the log locked, unless the log is down.
func (s *Source) with(ctx context.Context, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if s.log.down != nil {
		return s.log.down
	}
	return do()
}

func (s *Source) part(id sources.PartitionID) (*part, error) {
	if p := s.log.find(id); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s is not a partition of the log %s", id, s.log.name)
}

func (s *Source) Partitions(ctx context.Context) (all []sources.PartitionID, err error) {
	err = s.with(ctx, func() error {
		for _, p := range s.log.parts {
			all = append(all, p.id)
		}
		return nil
	})
	return all, err
}

// Bounds: for bounded input the head is what is there now. Later records are in another segment.
func (s *Source) Bounds(ctx context.Context, ids []sources.PartitionID) ([]sources.Bounds, error) {
	all := make([]sources.Bounds, len(ids))
	err := s.with(ctx, func() error {
		for i, id := range ids {
			p, err := s.part(id)
			all[i] = sources.Bounds{Partition: id, Bounded: !s.live, Estimated: true, Err: err}
			if err == nil {
				all[i].Low, all[i].Head = p.low(), p.head()
			}
		}
		return nil
	})
	return all, err
}

func (p *part) low() sources.Position {
	for _, g := range p.segs {
		if !g.trimmed {
			return sources.Position{Segment: g.id}
		}
	}
	return p.head()
}

func (p *part) head() sources.Position {
	return sources.Position{Segment: p.last().id, Offset: p.last().end()}
}

// Segments lists segments. For bounded input it first seals the open segment, so that later records go
// into another one. It lists a trimmed segment only if it has listed it before.
func (s *Source) Segments(ctx context.Context, id sources.PartitionID, after int64, most int) (all []sources.Segment, err error) {
	err = s.with(ctx, func() error {
		p, err := s.part(id)
		if err != nil {
			return err
		}
		if !s.live && len(p.last().records) > 0 {
			p.roll()
		}
		for _, g := range p.segs {
			out := sources.Segment{ID: g.id, End: g.end(), Sealed: g.sealed, Locator: locator(p.id, g.id), Name: fmt.Sprintf("%s segment %d", id, g.id)}
			_, known := s.known[string(out.Locator)]
			if g.id <= after || len(all) == most || g.trimmed && !known || !s.live && !g.sealed {
				continue
			}
			s.known[string(out.Locator)] = out
			all = append(all, out)
		}
		return nil
	})
	return all, err
}

func locator(p sources.PartitionID, segment int64) []byte {
	return binary.BigEndian.AppendUint64([]byte(p+"\x00"), uint64(segment))
}

func (s *Source) Open(ctx context.Context, r sources.Range, from sources.Position, at []byte) (sources.Cursor, error) {
	err := s.with(ctx, func() error {
		p, err := s.part(r.Partition)
		if err != nil {
			return err
		}
		if p.segment(r.Segment) == nil || string(at) != string(locator(r.Partition, r.Segment)) {
			return fmt.Errorf("%s has no segment %d, or its locator is damaged", r.Partition, r.Segment)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	first := max(r.Start, from.Offset)
	return &cursor{s: s, r: r, at: first}, nil
}

// Commit stores the marks. It refuses a mark that goes back without saying so.
func (s *Source) Commit(ctx context.Context, marks []sources.Mark) error {
	return s.with(ctx, func() error { return s.log.take(s.log.told, marks) })
}

func (l *Log) take(into map[sources.PartitionID]sources.Position, marks []sources.Mark) error {
	for _, m := range marks {
		if l.find(m.Partition) == nil {
			return fmt.Errorf("no partition %s", m.Partition)
		}
		if had, any := into[m.Partition]; !any || m.Back || had.Compare(m.Position) < 0 {
			into[m.Partition] = m.Position
		}
	}
	return nil
}

func (s *Source) Begin(ctx context.Context, parts []sources.PartitionID) error {
	return s.with(ctx, func() error {
		for _, id := range parts {
			s.log.begun[id] = true
		}
		return nil
	})
}

func (s *Source) Retain(ctx context.Context, marks []sources.Mark) error {
	return s.with(ctx, func() error {
		for _, m := range marks {
			if !s.log.begun[m.Partition] {
				return errors.New("nothing keeps " + string(m.Partition))
			}
		}
		return s.log.take(s.log.kept, marks)
	})
}

func (s *Source) Release(ctx context.Context) error {
	return s.with(ctx, func() error {
		clear(s.log.kept)
		clear(s.log.told)
		clear(s.log.begun)
		return nil
	})
}

// Keeps: the log deletes nothing by age or size.
func (s *Source) Keeps(ctx context.Context, marks []sources.Mark, _ time.Duration) ([]sources.Kept, error) {
	all := make([]sources.Kept, len(marks))
	err := s.with(ctx, func() error {
		for i, m := range marks {
			all[i] = sources.Kept{ByAge: sources.Never, Room: sources.Never, Retention: sources.Never}
			p, err := s.part(m.Partition)
			if err != nil {
				all[i].Err, all[i].Gone = err, true
				continue
			}
			all[i].Low, all[i].Head = p.low(), p.head()
		}
		return nil
	})
	return all, err
}
