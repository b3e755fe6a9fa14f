package files

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// containerOf is an Avro file of the longs first, first+1 and so on. blocks has the number of rows of each
// block.
func containerOf(first int64, blocks ...int) []byte {
	sized := func(b []byte, text string) []byte {
		return append(binary.AppendVarint(b, int64(len(text))), text...)
	}
	b := binary.AppendVarint([]byte("Obj\x01"), 1)
	b = binary.AppendVarint(sized(sized(b, "avro.schema"), `"long"`), 0)
	b = append(b, "0123456789abcdef"...)
	for _, n := range blocks {
		var plain []byte
		for range n {
			plain = binary.AppendVarint(plain, first)
			first++
		}
		b = append(binary.AppendVarint(binary.AppendVarint(b, int64(n)), int64(len(plain))), plain...)
		b = append(b, "0123456789abcdef"...)
	}
	return b
}

func openContainers(t *testing.T, dir string, known []sources.Segment) *Source {
	t.Helper()
	s, err := Open(Options{Dataset: "d", Spec: &Spec{Root: dir, MaxRecord: 1 << 20}, AllowedRoots: []string{dir}, Known: known,
		Framing: Framing{Kind: Container, EmptyLines: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// longsOf reads the rest of a range from begin on, and checks that positions follow each other.
func longsOf(t *testing.T, s *Source, g sources.Segment, from, to, begin int64) (all []int64, err error) {
	t.Helper()
	cur, err := s.Open(t.Context(), sources.Range{Partition: s.partition, Segment: g.ID, Start: from, End: to}, sources.Position{Segment: g.ID, Offset: begin}, g.Locator)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cur.Close() }()
	if h := cur.(sources.Headed).Header(); string(h) != `"long"` {
		t.Fatalf("the schema is %s", h)
	}
	var b sources.Batch
	at := max(from, begin)
	for {
		err := cur.Next(t.Context(), &b)
		if err == io.EOF {
			if at != to {
				return all, errors.New("the last record does not reach the end of the range")
			}
			return all, nil
		}
		if err != nil {
			return all, err
		}
		for _, rec := range b.Recs {
			if rec.Offset != at {
				return all, fmt.Errorf("a record is at %d, and the one before reached %d", rec.Offset, at)
			}
			at = rec.Next
			v, n := binary.Varint(b.Arena[rec.Value[0]:rec.Value[1]])
			if n != int(rec.Value[1]-rec.Value[0]) {
				return all, fmt.Errorf("record %d has %d bytes of a number of %d", rec.Offset, rec.Value[1]-rec.Value[0], n)
			}
			all = append(all, v)
		}
		if b.End != at {
			return all, errors.New("the batch ends elsewhere")
		}
	}
}

func TestHoweverRowsOfAvroFilesAreSplitTheyAreTheSame(t *testing.T) {
	rng, dir := rngOf(t), t.TempDir()
	const rows = 2 + 400_000 + 1 + 600_000 + 77
	for name, b := range map[string][]byte{
		"a.avro":     containerOf(0, 2, 0, 400_000, 1, 600_000, 77), // more than one restart point
		"b.avro":     containerOf(0),
		"sub/c.avro": containerOf(0, sameOf(500, 13)...),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := openContainers(t, dir, nil)
	segs, err := s.Segments(t.Context(), s.partition, -1, 100)
	if err != nil || len(segs) != 2 || segs[0].Name != "a.avro" || segs[0].End != rows || segs[1].End != 500*13 {
		t.Fatal(segs, err)
	}
	l, err := decodeLocator(segs[0].Locator)
	if err != nil || len(l.Points) != 3 || l.Points[0] != (rowPoint{0, l.Points[0].at}) {
		t.Errorf("%+v, %v", l, err)
	}
	again, err := openContainers(t, dir, segs[:1]).Segments(t.Context(), s.partition, -1, 100)
	if err != nil || len(again) != 2 || string(again[1].Locator) != string(segs[1].Locator) {
		t.Error(again, err)
	}
	for _, g := range segs {
		for range 5 {
			next := int64(0)
			for at := int64(0); at < g.End; {
				to := min(g.End, at+1+rng.Int64N(g.End/5))
				begin := at
				if rng.IntN(3) == 0 { // read a part, and then the rest
					begin += rng.Int64N(to - at)
					next = begin
				}
				ids, err := longsOf(t, s, g, at, to, begin)
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range ids {
					if id != next {
						t.Fatalf("read row %d, want row %d", id, next)
					}
					next++
				}
				at = to
			}
			if next != g.End {
				t.Fatalf("%d rows", next)
			}
		}
	}
	spec := &dataset.Spec{Decode: dataset.DecodeSpec{Format: "avro"}}
	if place := (&Spec{}).Place(spec, "a.avro", 17); place != "a.avro row 17" {
		t.Errorf("a record is at %q", place)
	}
}

// sameOf returns n blocks of `each` rows.
func sameOf(n, each int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = each
	}
	return all
}

// A large file has several segments. A master that is started again goes on after the segments that it has.
func TestALargeAvroFileHasSegmentsThatAreListedTheSameByAnother(t *testing.T) {
	dir := t.TempDir()
	const blocks, each = 400, 1000
	b := containerOf(1<<40, sameOf(blocks, each)...) // 6 bytes each
	if err := os.WriteFile(filepath.Join(dir, "a.avro"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(known []sources.Segment) *Source {
		s := openContainers(t, dir, known)
		s.blocks.segment, s.blocks.every = 660<<10, 20<<10
		return s
	}
	s := open(nil)
	segs, err := s.Segments(t.Context(), s.partition, -1, 100)
	if err != nil || len(segs) != 4 || segs[3].End != blocks*each {
		t.Fatal(segs, err)
	}
	next := open(segs[:2])
	again, err := next.Segments(t.Context(), s.partition, -1, 100)
	if err != nil || len(again) != 4 {
		t.Fatal(again, err)
	}
	for i, g := range segs {
		if i > 0 && g.Start != segs[i-1].End || g.Start != again[i].Start || g.End != again[i].End {
			t.Errorf("segment %d is [%d, %d), listed again it is [%d, %d)", i, g.Start, g.End, again[i].Start, again[i].End)
		}
		for _, at := range []int64{g.Start, (g.Start + g.End) / 2, g.End - 1} {
			for _, of := range []sources.Segment{g, again[i]} {
				if ids, err := longsOf(t, s, of, at, at+1, at); err != nil || len(ids) != 1 || ids[0] != 1<<40+at {
					t.Errorf("row %d is %v, %v", at, ids, err)
				}
			}
		}
	}
}

func TestAnAvroFileThatIsNotWhatItWasIsNamed(t *testing.T) {
	good := containerOf(0, 100, 100)
	for harm, want := range map[string]string{"gone": "gone", "other": "", "cut": "", "block": "marker"} {
		dir := t.TempDir()
		name := filepath.Join(dir, "a.avro")
		if err := os.WriteFile(name, good, 0o600); err != nil {
			t.Fatal(err)
		}
		s := openContainers(t, dir, nil)
		segs, err := s.Segments(t.Context(), s.partition, -1, 100)
		if err != nil {
			t.Fatal(err)
		}
		switch harm {
		case "gone":
			err = os.Remove(name)
		case "other":
			err = os.WriteFile(name, containerOf(5, 100, 100), 0o600)
		case "cut":
			err = os.Truncate(name, int64(len(good)-20))
		case "block":
			bad := append([]byte(nil), good...)
			bad[len(bad)-1]++
			if err = os.WriteFile(name, bad, 0o600); err == nil {
				_, err = openContainers(t, dir, nil).Segments(t.Context(), s.partition, -1, 100)
				if err == nil || !strings.Contains(err.Error(), "a.avro") || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v", harm, err)
				}
				continue
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = longsOf(t, s, segs[0], 0, 200, 0)
		if err == nil || !strings.Contains(err.Error(), "a.avro") {
			t.Errorf("%s: got the error %v, want one with %q", harm, err, "a.avro")
		}
	}
}

// A record over the dataset's limit is named with its row, after the records before it were read.
func TestARowOverTheLimitIsToldWithItsPosition(t *testing.T) {
	dir := t.TempDir()
	big := strings.Repeat("x", 5000)
	b := binary.AppendVarint([]byte("Obj\x01"), 1)
	b = append(binary.AppendVarint(b, 11), "avro.schema"...)
	b = append(binary.AppendVarint(b, 8), `"string"`...)
	b = append(binary.AppendVarint(b, 0), "0123456789abcdef"...)
	plain := append(append([]byte{2, 'a', 2, 'b'}, binary.AppendVarint(nil, 5000)...), big...)
	b = append(binary.AppendVarint(binary.AppendVarint(b, 3), int64(len(plain))), plain...)
	b = append(b, "0123456789abcdef"...)
	if err := os.WriteFile(filepath.Join(dir, "a.avro"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	s := openContainers(t, dir, nil)
	s.spec.MaxRecord = 100
	segs, err := s.Segments(t.Context(), s.partition, -1, 100)
	if err != nil {
		t.Fatal(err)
	}
	cur, err := s.Open(t.Context(), sources.Range{Partition: s.partition, End: 3}, sources.Position{}, segs[0].Locator)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cur.Close() }()
	var batch sources.Batch
	if err := cur.Next(t.Context(), &batch); err != nil || len(batch.Recs) != 2 || batch.End != 2 {
		t.Fatalf("%+v, %v", batch, err)
	}
	var large *sources.TooLarge
	if err := cur.Next(t.Context(), &batch); !errors.As(err, &large) || large.Position.Offset != 2 || large.Name != "a.avro" || large.Next != 3 || len(large.Value) != 5002 {
		t.Errorf("got %v, want an error that names row 2 of a.avro, which is too large", err)
	}
}

// A file was listed in part when the master stopped. When the master starts again, another file has its name.
func TestAnAvroFileThatWasListedInPartAndIsAnotherOneIsNamed(t *testing.T) {
	dir := t.TempDir()
	write := func(first int64) {
		if err := os.WriteFile(filepath.Join(dir, "a.avro"), containerOf(first, 10, 10, 10), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	segs, err := openContainers(t, dir, nil).Segments(t.Context(), "files:d", -1, 100)
	if err != nil {
		t.Fatal(err)
	}
	l, err := decodeLocator(segs[0].Locator)
	if err != nil {
		t.Fatal(err)
	}
	l.End = 10
	segs[0].End, segs[0].Locator = l.End, l.encode()
	again, err := openContainers(t, dir, segs[:1]).Segments(t.Context(), "files:d", -1, 100)
	if err != nil || again[1].Start != 10 || again[1].End != 30 {
		t.Fatal(again, err)
	}
	write(1 << 20)
	_, err = openContainers(t, dir, segs[:1]).Segments(t.Context(), "files:d", 0, 100)
	changed, ok := errors.AsType[*sources.Changed](err)
	if !ok || changed.Name != "a.avro" || changed.Range.Start != 10 || changed.Range.End != 30 {
		t.Error(err)
	}
}

// countdown is a context that ends after its Err was called so often.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// Passing over the rows before a range may take long. It stops when the context ends, and another read
// goes on from there.
func TestPassingRowsOfAnAvroFileEndsWhenItIsNoLongerWanted(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.avro"), containerOf(0, 10, 20*headsAtOnce), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openContainers(t, dir, nil)
	segs, err := s.Segments(t.Context(), s.partition, -1, 100)
	if err != nil {
		t.Fatal(err)
	}
	at := segs[0].End - 1
	cur, err := s.Open(t.Context(), sources.Range{Partition: s.partition, Start: at, End: at + 1}, sources.Position{Offset: at}, segs[0].Locator)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cur.Close() }()
	var b sources.Batch
	ctx := &countdown{t.Context(), 10}
	if err := cur.Next(ctx, &b); !errors.Is(err, context.Canceled) || ctx.left < -10 {
		t.Errorf("got %v; the context was asked %d times after its end", err, -ctx.left)
	}
	if err := cur.Next(t.Context(), &b); err != nil || len(b.Recs) != 1 || b.Recs[0].Offset != at {
		t.Error(b.Recs, err)
	}
}
