package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/headrace/headrace/internal/dataset"
)

var someFields = []dataset.Field{
	{Name: "label", DType: dataset.Float32},
	{Name: "cat", DType: dataset.Int64, Shape: []int{3}, Mask: true},
	{Name: "ids", DType: dataset.Int32, Ragged: true, Mask: true},
	{Name: "text", DType: dataset.String, Mask: true},
	{Name: "words", DType: dataset.Bytes, Ragged: true},
	{Name: "flag", DType: dataset.Bool},
}

func layoutOf(t testing.TB, fields []dataset.Field) *Layout {
	t.Helper()
	l, err := NewLayout(fields)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// fill appends rows [from, to). The values of row i are computed from i.
func fill(b *Builder, from, to int) {
	for i := from; i < to; i++ {
		r := b.Rows()
		b.Offsets[r] = int64(10 * i)
		View[float32](b.Columns[0].Values)[r] = float32(i)
		for k := range 3 {
			View[int64](b.Columns[1].Values)[3*r+k] = int64(i * k)
			b.Columns[1].Mask[3*r+k] = byte(i+k) & 1
		}
		c := &b.Columns[2]
		for k := range i % 4 {
			c.Values = binary.LittleEndian.AppendUint32(c.Values, uint32(k))
		}
		c.RowOffsets[r+1], c.Mask[r] = int64(len(c.Values)/4), byte(i&1)
		c = &b.Columns[3]
		c.Values = append(c.Values, strings.Repeat("s", i%5)...)
		c.RowOffsets[r+1], c.Mask[r] = int64(len(c.Values)), 1
		c = &b.Columns[4]
		for k := range i % 3 {
			c.Values = append(c.Values, strings.Repeat("w", k+i%2)...)
			c.Elements = append(c.Elements, int64(len(c.Values)))
		}
		c.RowOffsets[r+1] = int64(len(c.Elements) - 1)
		b.Columns[5].Values[r] = byte(i & 1)
		b.SetRows(r + 1)
	}
}

func expectRows(t *testing.T, f *Frame, from, to int) {
	t.Helper()
	if f.Rows != to-from {
		t.Fatalf("%d rows, not %d", f.Rows, to-from)
	}
	for i := from; i < to; i++ {
		r := i - from
		words := []any{}
		for k := range i % 3 {
			words = append(words, []byte(strings.Repeat("w", k+i%2)))
		}
		ids := []any{}
		for k := range i % 4 {
			ids = append(ids, int32(k))
		}
		want := []any{float32(i), []any{int64(0), int64(i), int64(2 * i)}, ids, strings.Repeat("s", i%5), words, i&1 == 1}
		for c := range f.Columns {
			if got := f.Columns[c].Row(r); !reflect.DeepEqual(got, want[c]) {
				t.Fatalf("row %d, %s: %v, not %v", i, someFields[c].Name, got, want[c])
			}
		}
		if f.Offsets[r] != int64(10*i) || f.Columns[1].Mask[3*r+1] != byte(i+1)&1 || f.Columns[2].Mask[r] != byte(i&1) {
			t.Fatalf("row %d: offset %d or masks", i, f.Offsets[r])
		}
	}
}

func finished(t testing.TB, b *Builder, h Head, spans ...Span) *Frame {
	t.Helper()
	if spans == nil {
		spans = []Span{{Rows: uint32(b.Rows())}}
	}
	payload, err := b.Finish(h, spans)
	if err != nil {
		t.Fatal(err)
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(payload)))%align != 0 {
		t.Fatal("the payload is not aligned")
	}
	f, err := Read(b.Layout(), bytes.Clone(payload))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAFrameHoldsTheRowsThatTheBuilderGot(t *testing.T) {
	l := layoutOf(t, someFields)
	b, err := NewBuilder(l, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int{100, 1, 63, 64, 65, 99, 100} { // a full frame, and frames with fewer rows
		fill(b, 7, 7+rows)
		head := Head{RowsPerBatch: 10, FirstBatch: 5, Last: rows == 1, Names: []byte(`{"partitions":{"7":"files:clicks"}}`)}
		span := Span{Rows: uint32(rows), Partition: 1, Pass: 2, Dataset: 3, Segment: 4, Start: 5, End: 6, LeaseFrom: 7, LeaseTo: 8, Epoch: 9, Term: 10, Sequence: 11, EventTime: 12}
		f := finished(t, b, head, span)
		expectRows(t, f, 7, 7+rows)
		if f.Spans[0] != span || f.FirstBatch != 5 || f.Batches != (rows+9)/10 || f.Last != (rows == 1) || string(f.Names) != string(head.Names) {
			t.Fatalf("the frame was read as %+v", f)
		}
		b.Reset()
	}
}

func TestMoreSpansThanForeseenMakeRoom(t *testing.T) {
	b, _ := NewBuilder(layoutOf(t, someFields), 50)
	for range 2 {
		fill(b, 0, 50)
		spans := make([]Span, 50)
		for i := range spans {
			spans[i] = Span{Rows: 1, Start: int64(i)}
		}
		f := finished(t, b, Head{RowsPerBatch: 50}, spans...)
		expectRows(t, f, 0, 50)
		if !reflect.DeepEqual(f.Spans, spans) {
			t.Fatal(f.Spans)
		}
		b.Reset()
	}
}

func TestTruncateAndMoveTailSplitRowsExactly(t *testing.T) {
	l := layoutOf(t, someFields)
	for cut := range 21 {
		a, _ := NewBuilder(l, 30)
		b, _ := NewBuilder(l, 30)
		fill(b, 90, 95)
		fill(a, 0, 25)
		a.Truncate(20)
		if err := a.MoveTail(cut, b); err != nil {
			t.Fatal(err)
		}
		if a.Rows() != cut || b.Rows() != 25-cut {
			t.Fatal(a.Rows(), b.Rows())
		}
		fill(a, cut, 21)
		expectRows(t, finished(t, a, Head{RowsPerBatch: 21}), 0, 21)
		fill(b, 20, 24) // more rows after those that were moved
		rest, _ := NewBuilder(l, 30)
		if err := b.MoveTail(5, rest); err != nil {
			t.Fatal(err)
		}
		expectRows(t, finished(t, b, Head{RowsPerBatch: 5}), 90, 95)
		expectRows(t, finished(t, rest, Head{RowsPerBatch: 50}), cut, 24)
	}
}

func TestAPoolsBuildersGrowOnDemandAndSmallOnesAreDropped(t *testing.T) {
	p, err := NewPool(layoutOf(t, someFields), 10, 35)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{10, 20, 35, 35} {
		b := p.Get()
		if b.Limit() != want {
			t.Errorf("a builder for %d rows, want %d", b.Limit(), want)
		}
		p.Grow()
		p.Put(b)
	}
	for _, rows := range []int{0, maxRows + 1} {
		if _, err := NewPool(layoutOf(t, someFields), rows, 10); err == nil {
			t.Errorf("a pool for %d rows", rows)
		}
	}
}

func TestWhatDoesNotFitIsAnErrorAndNotAFrame(t *testing.T) {
	l := layoutOf(t, someFields)
	if _, err := NewBuilder(l, 1<<26); err == nil || !strings.Contains(err.Error(), "ask for fewer rows") {
		t.Errorf("got the error %v, want one with %q", err, "ask for fewer rows")
	}
	b, _ := NewBuilder(l, 10)
	if _, err := b.Finish(Head{}, nil); err == nil {
		t.Error("a frame with 0 rows for each batch was accepted")
	}
	fill(b, 0, 5)
	if _, err := b.Finish(Head{RowsPerBatch: 1}, []Span{{Rows: 4}}); err == nil {
		t.Error("spans whose rows do not add up were accepted")
	}
	other, _ := NewBuilder(l, 4)
	if err := b.MoveTail(0, other); err == nil || b.Rows() != 5 {
		t.Error("five rows were moved into a builder with room for four")
	}
	expectRows(t, finished(t, b, Head{RowsPerBatch: 5}), 0, 5)
	for _, f := range []dataset.Field{{DType: 99}, {DType: dataset.String, Shape: []int{2}}, {DType: dataset.Int32, Shape: []int{-1}}, {DType: dataset.Int64, Shape: []int{1 << 30, 1 << 30}}} {
		if _, err := NewLayout([]dataset.Field{f}); err == nil {
			t.Errorf("%+v has a layout", f)
		}
	}
}

func TestSchemaGoesOverTheWire(t *testing.T) {
	s := SchemaOf(&dataset.Schema{Fields: someFields})
	fields, err := s.Fields()
	if err != nil {
		t.Fatal(err)
	}
	for i := range fields {
		want := someFields[i]
		if want.Shape == nil {
			want.Shape = []int{}
		}
		if !reflect.DeepEqual(fields[i], want) {
			t.Errorf("%+v, not %+v", fields[i], want)
		}
	}
	for _, c := range []Column{{DType: "int8", Layout: "fixed"}, {DType: "int32", Layout: "odd"}, {DType: "int32", Layout: "ragged", Shape: []int{2}}, {DType: "int32", Layout: "fixed", Shape: []int{0}}} {
		if _, err := (Schema{Columns: []Column{c}}).Fields(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// FuzzRead checks for any bytes that Read returns a frame or an error, and that all of the frame can be read.
func FuzzRead(f *testing.F) {
	l := layoutOf(f, someFields)
	b, _ := NewBuilder(l, 8)
	fill(b, 0, 5)
	good, err := b.Finish(Head{RowsPerBatch: 2, Names: []byte("{}")}, []Span{{Rows: 2}, {Rows: 3}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Clone(good), uint32(0), byte(0))
	for _, at := range []uint32{0, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 64 + 192, 64 + 192 + 8} {
		f.Add(bytes.Clone(good), at, byte(0xFF))
	}
	f.Fuzz(func(t *testing.T, payload []byte, at uint32, v byte) {
		if len(payload) > 0 {
			payload[int(at)%len(payload)] ^= v
		}
		got, err := Read(l, payload)
		if err != nil {
			if !errors.Is(err, ErrFrame) {
				t.Fatalf("got the error %v, want %v", err, ErrFrame)
			}
			return
		}
		for c := range got.Columns {
			for r := range got.Rows {
				got.Columns[c].Row(r)
			}
		}
	})
}

// A rank's part of a round may be empty. It is still one batch.
func TestAFrameWithoutRowsIsOneEmptyBatch(t *testing.T) {
	l := layoutOf(t, someFields)
	b, _ := NewBuilder(l, 10)
	payload, err := b.Finish(Head{RowsPerBatch: 4, FirstBatch: 7}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Read(l, payload)
	if err != nil {
		t.Fatal(err)
	}
	if f.Rows != 0 || f.Batches != 1 || f.FirstBatch != 7 || len(f.Columns) != len(l.Columns) {
		t.Errorf("a frame without rows was read as %+v, want one empty batch", f)
	}
}
