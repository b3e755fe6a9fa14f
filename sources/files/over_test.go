package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/tfrecord"
	"github.com/headrace/headrace/sources"
)

// leftOut reads a range as an agent does that leaves out a record with an Alone error: it opens the range
// again at the next record.
func leftOut(t *testing.T, s *Source, g sources.Segment, a, b int64) (good []line, bad []sources.Alone) {
	t.Helper()
	for at := a; ; {
		got, err := readRangeFrom(t, s, g, a, b, at)
		good = append(good, got...)
		alone, ok := sources.StandsAlone(err)
		if err == nil {
			return good, bad
		}
		if !ok || alone.Start < at || alone.Next > b {
			t.Fatalf("[%d, %d) from %d: %v, %+v", a, b, at, err, alone)
		}
		bad, at = append(bad, alone), alone.Next
	}
}

// readRangeFrom reads [from, b) of the range [a, b). With an error it returns the records before it.
func readRangeFrom(t *testing.T, s *Source, g sources.Segment, a, b, from int64) (got []line, err error) {
	t.Helper()
	cur, err := s.Open(t.Context(), sources.Range{Partition: s.partition, Segment: g.ID, Start: a, End: b}, sources.Position{Segment: g.ID, Offset: from}, g.Locator)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cur.Close() }()
	var batch sources.Batch
	for {
		if err := cur.Next(t.Context(), &batch); err != nil {
			if err == io.EOF {
				err = nil
			}
			return got, err
		}
		for _, r := range batch.Recs {
			got = append(got, line{r.Offset, r.Next, string(batch.Arena[r.Value[0]:r.Value[1]])})
		}
	}
}

// oversized is content with one record over the limit.
type oversized struct {
	content  []byte
	at, next int64
	value    string
	framing  Framing
}

const overLimit = 1000

func ofOversized(before, size, after int) map[string]oversized {
	all := map[string]oversized{}
	add := func(name string, framing Framing, large string, record func(i int, large string) []byte) {
		o := oversized{framing: framing, value: large}
		for i := range before {
			o.content = append(o.content, record(i, "")...)
		}
		o.at = int64(len(o.content))
		o.content = append(o.content, record(0, large)...)
		o.next = int64(len(o.content))
		for i := range after {
			o.content = append(o.content, record(before+i, "")...)
		}
		all[name] = o
	}
	text := func(end string) func(i int, large string) []byte {
		return func(i int, large string) []byte {
			if large != "" {
				return []byte(large + end)
			}
			return fmt.Appendf(nil, "%d,good%s", i, end)
		}
	}
	x := strings.Repeat("0123456789", size/10)
	add("lines", Framing{Kind: Lines, Text: true}, x, text("\n"))
	add("lines of Windows", Framing{Kind: Lines, Text: true}, x, text("\r\n"))
	quoted := Framing{Kind: Quoted, Quote: '"', Delimiter: ',', Text: true}
	add("csv", quoted, "a,b,"+x, text("\n"))
	add("csv with quotes", quoted, strings.Repeat("\"say \"\"so\"\",\nor not\",7,", size/23), text("\r\n"))
	add("tfrecord", Framing{Kind: TFRecord, EmptyLines: true}, x, func(i int, large string) []byte {
		return tfrecord.Append(nil, []byte(large+strings.Repeat("g", i%7)))
	})
	add("delimited", Framing{Kind: Delimited, EmptyLines: true}, x, func(i int, large string) []byte {
		return delimited([]byte(large + strings.Repeat("g", i%7)))
	})
	return all
}

// Wherever a reader begins and ends, and however much it reads at once, it names the same extent of a
// record that is too large: from its beginning to the next record, or to the end of the range.
func TestARecordOverTheLimitIsTheSameFromEveryPlace(t *testing.T) {
	for _, size := range []int{1200, 9000, 300_000} {
		for name, o := range ofOversized(40, size, 40) {
			for _, bl := range []blocks{
				defaultBlocks,
				tinyBlocksFar(64, 100), tinyBlocksFar(700, 3000), tinyBlocksFar(5000, 100),
			} {
				for _, packed := range []bool{false, true} {
					content := o.content
					if packed {
						content = packGzip(t, 1, content)
					}
					s := one(t, content, o.framing, bl)
					if s.spec.MaxRecord = overLimit; size > overRoom { // a quote may be open for at most twice the limit
						s.spec.MaxRecord = 200_000
					}
					if packed {
						s.spec.Compression = "gzip"
					}
					segs, err := listAll(t, s)
					if err != nil {
						t.Fatalf("%s of %d: listing: %v", name, size, err)
					}
					holds := false
					for _, g := range segs {
						if g.Start > o.at || o.at >= g.End {
							continue
						}
						holds = true
						ends := []int64{g.End, o.at + 1, o.at + 500, o.next - 1, o.next, o.next + 5}
						for _, a := range []int64{g.Start, o.at - 30, o.at - 1, o.at} {
							for _, b := range ends {
								a, b := max(a, g.Start), min(b, g.End)
								_, bad := leftOut(t, s, g, a, b)
								want := sources.Alone{Start: o.at, Next: min(o.next, b), Value: []byte(o.value), Size: int64(len(o.value))}
								want.Value = want.Value[:min(len(want.Value), 64<<10)]
								if len(bad) != 1 || bad[0].Start != want.Start || bad[0].Next != want.Next || bad[0].Size != want.Size || !bytes.Equal(bad[0].Value, want.Value) {
									t.Fatalf("%s of %d, blocks %+v, [%d, %d): %+v, want [%d, %d) of %d bytes", name, size, bl, a, b, heads(bad), want.Start, want.Next, want.Size)
								}
							}
						}
						for _, a := range []int64{o.at + 1, o.at + 600, o.next - 1, o.next} { // the record begins before the range
							good, bad := leftOut(t, s, g, min(a, g.End), g.End)
							if len(bad) > 0 || g.End > o.next && (len(good) == 0 || good[0].at != o.next) {
								t.Fatalf("%s of %d, blocks %+v, from %d: %v, %+v", name, size, bl, a, good, heads(bad))
							}
						}
					}
					if !holds {
						t.Fatalf("%s: no segment has the record", name)
					}
				}
			}
		}
	}
}

func tinyBlocksFar(read, scan int64) blocks {
	return blocks{read: read, records: 5, overrun: 8, segment: 1000, every: 150, scan: scan, far: 1 << 20}
}

func heads(all []sources.Alone) (some []sources.Alone) {
	for _, a := range all {
		a.Value = a.Value[:min(len(a.Value), 20)]
		some = append(some, a)
	}
	return some
}

// The end of such a record is not known if a quote stays open, or if no line end is near.
func TestWithoutItsEndARecordOverTheLimitStopsTheReader(t *testing.T) {
	for name, c := range map[string]struct {
		framing Framing
		content string
	}{
		"no line end near": {Framing{Kind: Lines, Text: true}, "a\n" + strings.Repeat("x", 2<<20) + "\n"},
		"an open quote":    {Framing{Kind: Quoted, Quote: '"', Delimiter: ','}, "a\n\"" + strings.Repeat("1,2\n", 200_000) + "\"\n"},
		"cut short":        {Framing{Kind: Delimited, EmptyLines: true}, "\x01a" + string(delimited(make([]byte, 5000))[:4000])},
	} {
		s := one(t, []byte(c.content), c.framing, tinyBlocksFar(64, 100))
		s.spec.MaxRecord = overLimit
		segs, err := listAll(t, s)
		if err == nil {
			_, err = readRange(t, s, segs[0], 0, segs[0].End)
		}
		large, ok := errors.AsType[*sources.TooLarge](err)
		if _, alone := sources.StandsAlone(err); !ok || alone || large.Position.Offset != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The end of a raw file is known, so only the file that is over the limit is left out.
func TestARawFileOverTheLimitStandsAlone(t *testing.T) {
	for _, size := range []int{overLimit, overLimit + 1, 2 * overRoom} {
		content := bytes.Repeat([]byte("picture."), size/8+1)[:size]
		s := one(t, content, Framing{Kind: Whole}, defaultBlocks)
		s.spec.MaxRecord = overLimit
		g := mustList(t, s)[0]
		for _, cut := range []int64{g.End, 500} { // a range may end inside the record
			good, bad := leftOut(t, s, g, 0, cut)
			if rest, more := leftOut(t, s, g, cut, g.End); len(rest)+len(more) > 0 {
				t.Errorf("%d bytes, from %d on: %v, %v", size, cut, rest, more)
			}
			if size == overLimit {
				if len(good) != 1 || len(bad) > 0 {
					t.Errorf("%d bytes: %d records, left out %v", size, len(good), bad)
				}
				continue
			}
			if len(good) > 0 || len(bad) != 1 || bad[0].Start != 0 || bad[0].Next != cut || bad[0].Size != int64(size) ||
				!bytes.Equal(bad[0].Value, content[:min(size, 64<<10)]) {
				t.Errorf("%d bytes up to %d: %d records, left out %+v", size, cut, len(good), bad)
			}
		}
	}
}

// A reader whose context ends while it looks for the end returns that error, and can go on.
func TestTheSearchForALineEndIsCalledOff(t *testing.T) {
	s := one(t, []byte("a\n"+strings.Repeat("x", 2<<20)+"\nb\n"), Framing{Kind: Lines, Text: true}, defaultBlocks)
	s.spec.MaxRecord = overLimit
	g := mustList(t, s)[0]
	cur, err := s.Open(t.Context(), sources.Range{Partition: s.partition, Segment: g.ID, End: g.End}, sources.Position{Segment: g.ID, Offset: 2}, g.Locator)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cur.Close() }()
	var b sources.Batch
	if err := cur.Next(&expiring{Context: t.Context(), left: 3}, &b); !errors.Is(err, context.Canceled) {
		t.Fatalf("got the error %v, want %v", err, context.Canceled)
	}
	if alone, ok := sources.StandsAlone(cur.Next(t.Context(), &b)); !ok || alone.Start != 2 || alone.Next != 3+2<<20 {
		t.Error(alone, ok)
	}
}

// expiring is a context that ends after its Err was called so often.
type expiring struct {
	context.Context
	left int
}

func (e *expiring) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

func mustList(t *testing.T, s *Source) []sources.Segment {
	t.Helper()
	segs, err := listAll(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return segs
}

// FuzzPartsOfARecord checks that a walk in parts finds the same end as the framer does in the whole.
func FuzzPartsOfARecord(f *testing.F) {
	f.Add([]byte("a,\"b\n\"\"c\",d\r\n"), uint8(3))
	f.Add([]byte("x\"y,\"\"\n"), uint8(1))
	f.Fuzz(func(t *testing.T, content []byte, part uint8) {
		fr := framer{framing: Framing{Kind: Quoted, Quote: '"', Delimiter: ','}}
		_, next, st := fr.record(content, 0, false)
		w, at := fields{framing: &fr.framing}, -1
		for p, n := 0, 1+int(part); p < len(content) && at < 0; p += n {
			if i := w.end(content[p:min(p+n, len(content))]); i >= 0 {
				at = p + i
			}
		}
		if st == complete != (at >= 0) || at >= 0 && next != at+1 || st != complete && (st == inQuotes) != w.open() {
			t.Fatalf("%q: %d, want %d, state %d", content, at, next, st)
		}
	})
}
