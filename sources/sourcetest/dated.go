package sourcetest

import (
	"time"

	"github.com/headrace/headrace/sources"
)

// Dated is a Place that gives its records times of its own.
type Dated interface {
	// Border is later than the times of all records that were produced, and not later than
	// those of the next ones.
	Border() time.Time
}

// dated: a source that finds records by their time gives the place between those that came
// before a moment and those that came after it, the end if none came after it, and the
// beginning if all did. Records have the time of this machine's clock when they are produced,
// or their place is a Dated.
func (s *suite) dated() {
	if s.h.Tail == nil {
		return
	}
	p, before := s.place(40)
	src := s.h.Tail(s, p)
	s.Cleanup(func() { src.Close() })
	d, ok := src.(sources.Dater)
	if !ok {
		return
	}
	parts, err := src.Partitions(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	for _, id := range parts { // as it is when a dataset is followed
		if _, err := src.Segments(s.Context(), id, -1, 10); err != nil {
			s.Fatal(err)
		}
	}
	bounds := func() []sources.Bounds {
		all, err := src.Bounds(s.Context(), parts)
		if err != nil {
			s.Fatal(err)
		}
		return all
	}
	since := func(t time.Time) []sources.Position {
		all, err := d.Since(s.Context(), parts, t)
		if err != nil || len(all) != len(parts) {
			s.Fatalf("since %v: %v (%v)", t, all, err)
		}
		return all
	}
	old := bounds()
	border := border(p)
	for i, at := range since(border) {
		if at.Compare(old[i].Head) < 0 {
			s.Errorf("%s: no record is as new as %v, and since then it is from %v; it ends at %v", parts[i], border, at, old[i].Head)
		}
	}
	p.Produce(s, s.records(len(before), 60, 50))
	s.until("both halves are there", func() bool {
		for i, b := range bounds() {
			if b.Head.Compare(old[i].Head) <= 0 {
				return false
			}
		}
		return true
	})
	for i, at := range since(border) {
		if head := old[i].Head; at != head && (at.Segment <= head.Segment || at.Offset != 0) {
			s.Errorf("%s: since %v it is from %v, and what came before ends at %v", parts[i], border, at, head)
		}
	}
	for i, at := range since(border.Add(-24 * time.Hour)) {
		if at.Compare(old[i].Head) >= 0 && old[i].Low != old[i].Head {
			s.Errorf("%s: since yesterday it is from %v", parts[i], at)
		}
	}
}

func border(p Place) time.Time {
	if d, ok := p.(Dated); ok {
		return d.Border()
	}
	border := time.Now().Truncate(time.Millisecond).Add(2 * time.Millisecond)
	for time.Now().Before(border.Add(time.Millisecond)) {
		time.Sleep(time.Millisecond) // times of brokers are whole milliseconds
	}
	return border
}
