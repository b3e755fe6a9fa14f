package sourcetest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/headrace/headrace/sources"
)

func (s *suite) changed() {
	if s.h.Change == nil {
		return
	}
	p, _ := s.place(50)
	src := s.open(p, nil)
	all := s.pieces(src)
	s.h.Change(s, p)
	told := 0
	for _, one := range all {
		r := one.whole()
		_, err := Read(s.Context(), src, r, start(r), one.seg.Locator)
		var changed *sources.Changed
		var diverged *sources.Diverged
		switch {
		case errors.As(err, &changed):
			s.sameRange(changed.Range, r)
		case errors.As(err, &diverged):
			s.sameRange(diverged.Range, r)
		case err != nil:
			s.Errorf("%s: %v is neither Changed nor Diverged", one.seg.Name, err)
			continue
		default:
			continue
		}
		if told++; !strings.Contains(err.Error(), one.seg.Name) {
			s.Errorf("the error does not name %s: %v", one.seg.Name, err)
		}
	}
	if told == 0 {
		s.Error("no read failed")
	}
}

func (s *suite) sameRange(got, want sources.Range) {
	s.Helper()
	if got.Partition != want.Partition || got.Segment != want.Segment || got.Start < want.Start || got.End > want.End {
		s.Errorf("told about %+v, asked for %+v", got, want)
	}
}

func (s *suite) gone() {
	if s.h.Remove == nil {
		return
	}
	p, _ := s.place(50)
	src := s.open(p, nil)
	all := s.pieces(src)
	s.h.Remove(s, p)
	for _, one := range all {
		r := one.whole()
		_, err := Read(s.Context(), src, r, start(r), one.seg.Locator)
		var lost *sources.Truncated
		if !errors.As(err, &lost) {
			s.Errorf("%s: %v is not Truncated", one.seg.Name, err)
			continue
		}
		s.sameRange(lost.Lost, r)
	}
}

func (s *suite) tooLarge() {
	if s.h.MaxRecord == 0 {
		return
	}
	p := s.h.New(s)
	records := s.records(0, 30, 20)
	records[10] = s.h.Encode(s.rng, text(10, strings.Repeat("y", s.h.MaxRecord+1)))
	p.Produce(s, records)
	src := s.open(p, nil)
	seen := 0
	var large *sources.TooLarge
	for _, one := range s.pieces(src) {
		r := one.whole()
		got, err := Read(s.Context(), src, r, start(r), one.seg.Locator)
		seen += len(got)
		if err == nil {
			continue
		}
		if !errors.As(err, &large) {
			s.Fatalf("%v is not TooLarge", err)
		}
		if large.Partition != one.part || large.Limit != int64(s.h.MaxRecord) || large.Size <= large.Limit {
			s.Errorf("told %+v", large)
		}
		// Ranges that do not hold it can be read: everything is there but this one.
		at := large.Position.Offset
		before, after := one.cut(r.Start, at), one.cut(at+1, r.End)
		if k := len(s.read(src, one, before, start(before))); k != len(got) {
			s.Errorf("%d records before it, and %d when they are read alone", len(got), k)
		}
		seen += len(s.read(src, one, after, start(after)))
	}
	if large == nil {
		s.Fatal("no read failed")
	}
	if seen != 29 {
		s.Errorf("%d of the 29 others were read", seen)
	}
}

func (s *suite) cancelled() {
	p, _ := s.place(200)
	src := s.open(p, nil)
	one := s.pieces(src)[0]
	r := one.whole()
	ctx, cancel := context.WithCancel(s.Context())
	c, err := src.Open(ctx, r, start(r), one.seg.Locator)
	if err != nil {
		s.Fatal(err)
	}
	cancel()
	began := time.Now()
	var b sources.Batch
	if err := c.Next(ctx, &b); !errors.Is(err, context.Canceled) {
		s.Errorf("Next says %v", err)
	}
	if c, err := src.Open(ctx, r, start(r), one.seg.Locator); !errors.Is(err, context.Canceled) {
		if err == nil {
			c.Close()
		}
		s.Errorf("Open says %v", err)
	}
	if err := c.Close(); err != nil {
		s.Errorf("Close says %v", err)
	}
	if _, err := s.open(p, nil).Segments(ctx, one.part, -1, 10); !errors.Is(err, context.Canceled) {
		s.Errorf("Segments says %v", err)
	}
	if took := time.Since(began); took > patience {
		s.Errorf("it took %v", took)
	}
}
