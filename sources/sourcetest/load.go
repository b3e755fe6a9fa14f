package sourcetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headrace/headrace/sources"
)

func (s *suite) slow() {
	p, _ := s.place(300)
	src := s.open(p, nil)
	for _, one := range s.pieces(src) {
		var got []Got
		if err := again(s.Context(), func() (err error) { got, err = s.readSlowly(src, one); return err }); err != io.EOF {
			s.Fatal(err)
		}
		s.equal(got, s.readWhole(src, one), true, "read slowly")
	}
}

// readSlowly reads a segment. While it is busy with a batch, another reader reads everything.
func (s *suite) readSlowly(src sources.Source, one piece) (got []Got, err error) {
	r := one.whole()
	c, err := src.Open(s.Context(), r, start(r), one.seg.Locator)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for {
		var held sources.Batch
		if err := c.Next(s.Context(), &held); err != nil {
			return got, err
		}
		before := bytes.Clone(held.Arena)
		want := s.readWhole(src, one)
		if !bytes.Equal(before, held.Arena) {
			s.Fatal("a batch changed while it was held")
		}
		if got = appendBatch(got, one.seg.ID, &held); len(got) > len(want) {
			s.Fatalf("%d records of %d", len(got), len(want))
		}
	}
}

func (s *suite) concurrent() {
	p, _ := s.place(400)
	src := s.open(p, nil)
	pieces := s.pieces(src)
	whole := make([][]Got, len(pieces))
	for i, one := range pieces {
		whole[i] = s.readWhole(src, one)
	}
	type job struct {
		i    int
		r    sources.Range
		from sources.Position
	}
	jobs := make([]job, s.tries(200))
	for k := range jobs {
		i := s.rng.IntN(len(pieces))
		r := s.randomRange(pieces[i])
		jobs[k] = job{i, r, start(r)}
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for k := w; k < len(jobs); k += 8 {
				j := jobs[k]
				got, err := Read(s.Context(), src, j.r, j.from, pieces[j.i].seg.Locator)
				want := below(whole[j.i][len(below(whole[j.i], j.r.Start)):], j.r.End)
				if err != nil || !slices.EqualFunc(got, want, Got.same) {
					s.Errorf("%v: %d records, %v; want %d", j.r, len(got), err, len(want))
				}
			}
		})
	}
	wg.Wait()
}

// load produces in portions, so that it needs little memory, and reads every
// segment in a few ranges.
func (s *suite) load() {
	n := s.h.Count
	if n == 0 {
		n = 60_000
	}
	p := s.h.New(s)
	const portion = 25_000
	filling := strings.Repeat("z", 64)
	for from := 0; from < n; from += portion {
		records := make([][]byte, min(portion, n-from))
		for i := range records {
			records[i] = s.h.Encode(s.rng, text(from+i, filling[:s.rng.IntN(len(filling))]))
		}
		p.Produce(s, records)
	}
	src := s.open(p, nil)
	seen := make([]bool, n)
	count := 0
	for _, one := range s.pieces(src) {
		for at := one.seg.Start; at < one.seg.End; {
			end := min(one.seg.End, at+1+s.rng.Int64N(one.seg.End-one.seg.Start))
			k, err := s.markSeen(s.Context(), src, one, one.cut(at, end), seen)
			if err != nil {
				s.Fatal(err)
			}
			count, at = count+k, end
		}
	}
	if count != n {
		s.Errorf("%d of %d records were read", count, n)
	}
}

// markSeen reads a range, and marks the records that it holds.
func (s *suite) markSeen(ctx context.Context, src sources.Source, one piece, r sources.Range, seen []bool) (count int, err error) {
	var found []int
	if err := again(ctx, func() error { found, err = s.numbersIn(ctx, src, one, r, len(seen)); return err }); err != nil {
		return 0, err
	}
	for _, i := range found {
		if seen[i] {
			return 0, fmt.Errorf("record %d comes twice, the second time in [%d, %d) of %s", i, r.Start, r.End, one.seg.Name)
		}
		seen[i] = true
	}
	return len(found), nil
}

// numbersIn are the numbers of the records of a range, which are below most.
func (s *suite) numbersIn(ctx context.Context, src sources.Source, one piece, r sources.Range, most int) (found []int, err error) {
	c, err := src.Open(ctx, r, start(r), one.seg.Locator)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var b sources.Batch
	for {
		err := c.Next(ctx, &b)
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		for _, rec := range b.Recs {
			i, err := number(b.Arena[rec.Value[0]:rec.Value[1]])
			if err != nil || i >= most {
				return nil, fmt.Errorf("record %d at %d of %s was never produced (%v)", i, rec.Offset, one.seg.Name, err)
			}
			found = append(found, i)
		}
	}
}

// Bench reads whole segments again and again and reports bytes per second.
func Bench(b *testing.B, src sources.Source) {
	parts, err := src.Partitions(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var batch sources.Batch
	rng, bytes, records := rand.New(rand.NewPCG(1, 1)), int64(0), 0
	segs := Segments(b, src, parts[0], 1000)
	for b.Loop() {
		g := segs[rng.IntN(len(segs))]
		r := sources.Range{Partition: parts[0], Segment: g.ID, Start: g.Start, End: g.End}
		c, err := src.Open(b.Context(), r, start(r), g.Locator)
		if err != nil {
			b.Fatal(err)
		}
		for err = c.Next(b.Context(), &batch); err == nil; err = c.Next(b.Context(), &batch) {
			records += batch.Len()
		}
		if err != io.EOF {
			b.Fatal(err)
		}
		c.Close()
		bytes += g.End - g.Start
	}
	b.ReportMetric(float64(bytes)/1e9/b.Elapsed().Seconds(), "GB/s")
	b.ReportMetric(float64(records)/1e6/b.Elapsed().Seconds(), "Mrec/s")
}
