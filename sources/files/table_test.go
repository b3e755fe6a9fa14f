package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/parquet"
	"github.com/headrace/headrace/sources"
)

var idAndTags = []parquet.Path{
	{Text: "/id", Tokens: []string{"id"}, Stars: []bool{false}},
	{Text: "/tags/*", Tokens: []string{"tags", "*"}, Stars: []bool{false, true}},
}

// tableFolder holds copies of two of the package's test files; each has 300 rows in 3 row
// groups of 120, 120 and 60.
func tableFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"default.parquet", "v2.parquet"} {
		b, err := os.ReadFile(filepath.Join("../../internal/parquet/testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func openTables(t *testing.T, dir string, known []sources.Segment) *Source {
	t.Helper()
	s, err := Open(Options{Dataset: "d", Spec: &Spec{Root: dir, MaxRecord: 1 << 20}, AllowedRoots: []string{dir}, Known: known,
		Framing: Framing{Kind: Table, EmptyLines: true, Paths: idAndTags}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// idsOf reads the rest of a range from begin on, and checks that positions follow each other.
func idsOf(s *Source, g sources.Segment, from, to, begin int64) ([]int64, error) {
	ctx := context.Background()
	r := sources.Range{Partition: s.partition, Segment: g.ID, Start: from, End: to}
	cur, err := s.Open(ctx, r, sources.Position{Segment: g.ID, Offset: begin}, g.Locator)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cur.Close() }()
	var b sources.Batch
	var ids []int64
	at := max(from, begin)
	for {
		err := cur.Next(ctx, &b)
		if err == io.EOF {
			if at != to {
				return ids, errors.New("the last record does not reach the end of the range")
			}
			return ids, nil
		}
		if err != nil {
			return ids, err
		}
		id := b.Columns[0]
		for i := range b.Len() {
			rec := b.Rec(i)
			if rec.Offset != at {
				return ids, errors.New("a position was left out")
			}
			at = rec.Next
			values, k := id.Values, i
			if id.Dict != nil {
				values, k = id.Dict.Values, id.Entry(i)
			}
			ids = append(ids, int64(values[8*k])|int64(values[8*k+1])<<8)
		}
		if b.End != at {
			return ids, errors.New("the batch ends elsewhere")
		}
	}
}

func TestHoweverRowsAreSplitTheyAreTheSame(t *testing.T) {
	rng, dir := rngOf(t), tableFolder(t)
	s := openTables(t, dir, nil)
	ctx := context.Background()
	segs, err := s.Segments(ctx, s.partition, -1, 100)
	if err != nil || len(segs) != 2 {
		t.Fatal(segs, err)
	}
	again, err := openTables(t, dir, segs[:1]).Segments(ctx, s.partition, -1, 100)
	if err != nil || len(again) != 2 || string(again[1].Locator) != string(segs[1].Locator) {
		t.Error(again, err)
	}
	for _, g := range segs {
		if g.Start != 0 || g.End != 300 {
			t.Fatalf("a segment is [%d, %d)", g.Start, g.End)
		}
		for range 50 {
			next := int64(0)
			for at := g.Start; at < g.End; {
				to := min(g.End, at+1+rng.Int64N(90))
				begin := at
				if rng.IntN(3) == 0 { // read a part, and then the rest
					begin += rng.Int64N(to - at)
					if _, err := idsOf(s, g, at, to, at); err != nil {
						t.Fatal(err)
					}
					next = begin
				}
				ids, err := idsOf(s, g, at, to, begin)
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
			if next != 300 {
				t.Fatalf("%d rows", next)
			}
		}
	}
}

func TestAParquetFileThatIsNotWhatItWasIsNamed(t *testing.T) {
	for _, harm := range []string{"gone", "other", "cut", "damaged", "text", "empty"} {
		dir := tableFolder(t)
		s := openTables(t, dir, nil)
		name := filepath.Join(dir, "v2.parquet")
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want := "v2.parquet"
		listed := harm == "gone" || harm == "other"
		var segs []sources.Segment
		if listed {
			if segs, err = s.Segments(context.Background(), s.partition, -1, 100); err != nil {
				t.Fatal(err)
			}
		}
		switch harm {
		case "gone":
			err = os.Remove(name)
		case "other":
			want = "changed"
			err = os.WriteFile(name, append(b, 0), 0o600)
		case "cut":
			want = "does not end with PAR1"
			err = os.WriteFile(name, b[:len(b)-1], 0o600)
		case "damaged":
			want = "v2.parquet"
			for i := 4; i < 4000; i++ {
				b[i] = 0xEE
			}
			err = os.WriteFile(name, b, 0o600)
		case "text":
			want = "is no Parquet file"
			err = os.WriteFile(name, []byte("id,tags\n1,2 and so on\n"), 0o600)
		case "empty":
			want = "is no Parquet file"
			err = os.WriteFile(name, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !listed {
			segs, err = s.Segments(context.Background(), s.partition, -1, 100)
		}
		if err == nil {
			_, err = idsOf(s, segs[1], 0, 300, 0)
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "v2.parquet") {
			t.Errorf("%s: %v", harm, err)
		}
		if lost := (*sources.Truncated)(nil); harm == "gone" && !errors.As(err, &lost) {
			t.Errorf("gone: %v", err)
		}
	}
}

func TestARowOverTheLimitIsToldWithFileGroupAndColumn(t *testing.T) {
	s := openTables(t, tableFolder(t), nil)
	segs, err := s.Segments(t.Context(), s.partition, -1, 100)
	if err != nil {
		t.Fatal(err)
	}
	s.spec.MaxRecord = 21 // an id of 8 bytes, and tags
	var large *sources.TooLarge
	ids, err := idsOf(s, segs[0], 0, 300, 0)
	if !errors.As(err, &large) || large.Position.Offset != int64(len(ids)) || large.Name != "default.parquet" || !strings.Contains(err.Error(), "row group 0, column /tags/*") ||
		!strings.Contains(err.Error(), "raise max_record") {
		t.Fatalf("%d rows, %v", len(ids), err)
	}
	for i, id := range ids {
		if id != int64(i) {
			t.Fatalf("row %d has id %d", i, id)
		}
	}
	next, passed := int64(0), 0
	for next < 300 { // read row by row: each row comes, or is named in an error
		ids, err := idsOf(s, segs[0], next, 300, next)
		for _, id := range ids {
			if id != next {
				t.Fatalf("row %d has id %d", next, id)
			}
			next++
		}
		if alone, ok := sources.StandsAlone(err); ok && alone.Start == next && alone.Next == next+1 {
			next, passed = next+1, passed+1
		} else if err != nil {
			t.Fatal(next, err)
		}
	}
	if passed == 0 || passed > 250 {
		t.Errorf("%d rows are too large", passed)
	}
}

// A file was listed in part when the master stopped. When the master starts again, another file has its name.
func TestAParquetFileThatWasListedInPartAndIsAnotherOneIsNamed(t *testing.T) {
	dir := tableFolder(t)
	segs, err := openTables(t, dir, nil).Segments(t.Context(), "files:d", -1, 100)
	if err != nil {
		t.Fatal(err)
	}
	l, err := decodeLocator(segs[0].Locator)
	if err != nil {
		t.Fatal(err)
	}
	l.End = 120 // the first row group
	segs[0].End, segs[0].Locator = l.End, l.encode()
	again, err := openTables(t, dir, segs[:1]).Segments(t.Context(), "files:d", -1, 100)
	if err != nil || again[1].Start != 120 || again[1].End != 300 || again[1].Name != segs[0].Name {
		t.Fatal(again, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "v2.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "default.parquet"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = openTables(t, dir, segs[:1]).Segments(t.Context(), "files:d", 0, 100)
	changed, ok := errors.AsType[*sources.Changed](err)
	if !ok || changed.Name != "default.parquet" || changed.Range.Start != 120 || changed.Range.End != 300 {
		t.Error(err)
	}
}

// A footer that says that values of a wanted field have -8 bytes is refused.
func TestAParquetFileWithAValueLengthBelowZeroIsNamed(t *testing.T) {
	dir := t.TempDir()
	b, err := os.ReadFile("../../internal/parquet/testdata/default.parquet")
	if err != nil {
		t.Fatal(err)
	}
	field := "\x15\x0e\x15\x10\x15\x02\x18\x05fixed" // a type, a length of 8, optional, a name
	if bytes.Count(b, []byte(field)) != 1 {
		t.Fatal("the footer of the test's file does not have the expected field")
	}
	b = bytes.Replace(b, []byte(field), []byte("\x15\x0e\x15\x0f\x15\x02\x18\x05fixed"), 1)
	if err := os.WriteFile(filepath.Join(dir, "hostile.parquet"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Options{Dataset: "d", Spec: &Spec{Root: dir, MaxRecord: 1 << 20}, AllowedRoots: []string{dir},
		Framing: Framing{Kind: Table, EmptyLines: true, Paths: []parquet.Path{{Text: "/fixed", Tokens: []string{"fixed"}, Stars: []bool{false}}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	segs, err := s.Segments(t.Context(), s.partition, -1, 100)
	for _, g := range segs {
		_, err = idsOf(s, g, g.Start, g.End, g.Start)
	}
	if err == nil || !strings.Contains(err.Error(), "hostile.parquet") || !strings.Contains(err.Error(), "column /fixed: has values of -8 bytes") {
		t.Error(err)
	}
}

// A cursor whose context ended in the middle of a batch goes on with another context. Each row comes once,
// and whole.
func TestACursorOfATableGoesOnAfterItWasCalledOff(t *testing.T) {
	s := openTables(t, tableFolder(t), nil)
	segs, err := s.Segments(t.Context(), s.partition, -1, 100)
	if err != nil {
		t.Fatal(err)
	}
	g := segs[0]
	read := func(left int) (rows []string, calledOff bool) {
		cur, err := s.Open(t.Context(), sources.Range{Partition: s.partition, Segment: g.ID, End: g.End}, sources.Position{Segment: g.ID}, g.Locator)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cur.Close() }()
		var b sources.Batch
		ctx := context.Context(&expiring{Context: t.Context(), left: left})
		for {
			switch err := cur.Next(ctx, &b); {
			case errors.Is(err, context.Canceled):
				ctx, calledOff = t.Context(), true
				continue
			case err == io.EOF:
				return rows, calledOff
			case err != nil:
				t.Fatalf("with a context that ends after %d checks: %v", left, err)
			}
			for i := range b.Len() {
				if b.Rec(i).Offset != int64(len(rows)) {
					t.Fatalf("row %d is at %d", len(rows), b.Rec(i).Offset)
				}
				rows = append(rows, fmt.Sprintf("%x %x", cellsOf(&b.Columns[0], i), cellsOf(&b.Columns[1], i)))
			}
		}
	}
	want, _ := read(1 << 30)
	if len(want) != 300 {
		t.Fatal(len(want))
	}
	for left := 0; ; left++ {
		got, calledOff := read(left)
		if !slices.Equal(got, want) {
			t.Fatalf("with a context that ended after %d checks, the %d rows differ from those of one read", left, len(got))
		}
		if !calledOff {
			if left < 6 {
				t.Errorf("the cursor checks its context only %d times", left)
			}
			return
		}
	}
}

// cellsOf returns the values of a row.
func cellsOf(c *sources.Column, row int) (cells [][]byte) {
	slot, end := row, row+1
	if c.List {
		slot, end = 0, int(c.Ends[row])
		if row > 0 {
			slot = int(c.Ends[row-1])
		}
	}
	value := slot
	if len(c.Valid) > 0 {
		value = sources.CountValid(c.Valid[:slot])
	}
	for ; slot < end; slot++ {
		if len(c.Valid) > 0 && c.Valid[slot] == 0 {
			cells = append(cells, []byte("null"))
			continue
		}
		k, values, offsets := value, c.Values, c.Offsets
		if c.Dict != nil {
			k, values, offsets = c.Entry(value), c.Dict.Values, c.Dict.Offsets
		}
		if size := c.Kind.Size(); size > 0 {
			cells = append(cells, values[size*k:size*k+size])
		} else {
			cells = append(cells, values[offsets[k]:offsets[k+1]])
		}
		value++
	}
	return cells
}

// The batch of a lease that has ended is filled for the next lease. Until then it keeps its columns and
// their memory, but no dictionary of the file that was read.
func TestABatchKeepsTheMemoryOfItsColumnsAtTheEnd(t *testing.T) {
	s := openTables(t, tableFolder(t), nil)
	ctx := context.Background()
	segments, err := s.Segments(ctx, s.partition, -1, 10)
	if err != nil {
		t.Fatal(err)
	}
	var b sources.Batch
	for _, g := range segments {
		r := sources.Range{Partition: s.partition, Segment: g.ID, Start: g.Start, End: g.End}
		cur, err := s.Open(ctx, r, sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
		if err != nil {
			t.Fatal(err)
		}
		memory := 0
		for err = cur.Next(ctx, &b); err == nil; err = cur.Next(ctx, &b) {
			memory = 0
			for _, c := range b.Columns {
				memory += cap(c.Values) + cap(c.Entries) + cap(c.Short)
			}
		}
		if err != io.EOF {
			t.Fatal(err)
		}
		if err := cur.Close(); err != nil {
			t.Fatal(err)
		}
		for _, c := range b.Columns {
			if memory -= cap(c.Values) + cap(c.Entries) + cap(c.Short); c.Dict != nil {
				t.Errorf("%s: segment %d has ended, and its dictionary is kept", c.Path, g.ID)
			}
		}
		if memory > 0 || len(b.Columns) != len(idAndTags) {
			t.Errorf("segment %d: %d columns, and %d bytes less than while it was read", g.ID, len(b.Columns), memory)
		}
	}
}
