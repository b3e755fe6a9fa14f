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

// dated: a source that finds records by their time (sources.Dater) is asked about a moment, the
// border. While all records are older, it gives the end of the partition. Once newer ones are
// produced, it gives the place between the older and the newer ones. For a time before all
// records, it gives the beginning. Records have the time of this machine's clock when they are
// produced, unless their place is a Dated.
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
	parts, err := partitionsOf(s.Context(), src)
	if err != nil {
		s.Fatal(err)
	}
	for _, id := range parts { // a live dataset has been listed before it is asked
		if _, err := segmentsAfter(s.Context(), src, id, -1, 10); err != nil {
			s.Fatal(err)
		}
	}
	bounds := func() []sources.Bounds {
		all, err := boundsOf(s.Context(), src, parts)
		if err != nil {
			s.Fatal(err)
		}
		return all
	}
	since := func(t time.Time) []sources.Position {
		var all []sources.Position
		err := again(s.Context(), func() (err error) { all, err = d.Since(s.Context(), parts, t); return err })
		if err != nil || len(all) != len(parts) {
			s.Fatalf("since %v: %v (%v)", t, all, err)
		}
		return all
	}
	old := bounds()
	border := border(p)
	for i, at := range since(border) {
		if at.Compare(old[i].Head) < 0 {
			s.Errorf("%s: Since(%v) is %v, but no record is as new and the partition ends at %v", parts[i], border, at, old[i].Head)
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
			s.Errorf("%s: Since(%v) is %v, but the older records end at %v", parts[i], border, at, head)
		}
	}
	for i, at := range since(border.Add(-24 * time.Hour)) {
		if at.Compare(old[i].Head) >= 0 && old[i].Low != old[i].Head {
			s.Errorf("%s: Since(yesterday) is %v, which leaves out older records", parts[i], at)
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
