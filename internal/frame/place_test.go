package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
)

func TestAFrameMadeInGivenMemoryIsTheSame(t *testing.T) {
	l := layoutOf(t, someFields)
	pool, err := NewPool(l, 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	memory := alignedBytes(pool.ArenaSize() + 1<<16)
	for _, rows := range []int{100, 1, 63, 64, 65, 100} {
		for i := range memory {
			memory[i] = 0xA5 // as if another frame had been there
		}
		own, placed := pool.Get(), pool.GetIn(memory)
		fill(own, 7, 7+rows)
		fill(placed, 7, 7+rows)
		head := Head{RowsPerBatch: 10, FirstBatch: 5, Names: []byte(`{"partitions":{"7":"files:clicks"}}`)}
		a, err := own.Finish(head, []Span{{Rows: uint32(rows)}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := placed.Finish(head, []Span{{Rows: uint32(rows)}})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Fatalf("frames of %d rows differ", rows)
		}
		if !placed.Placed() || &b[0] != &memory[0] || own.Placed() {
			t.Fatal("the frame is not in the given memory")
		}
		pool.Put(own)
		pool.Put(placed)
		if !bytes.Equal(a, memory[:len(a)]) {
			t.Fatal("a builder that was put back into the pool has changed the given memory")
		}
	}
}

func TestAFrameThatOutgrowsItsMemoryLiesInTheBuildersOwn(t *testing.T) {
	pool, err := NewPool(layoutOf(t, someFields), 50, 50)
	if err != nil {
		t.Fatal(err)
	}
	small := alignedBytes(pool.ArenaSize() - 1)
	b := pool.GetIn(small)
	if b.Placed() {
		t.Error("a frame was placed in too little memory")
	}
	fill(b, 0, 50)
	expectRows(t, finished(t, b, Head{RowsPerBatch: 50}), 0, 50)

	tight := alignedBytes(pool.ArenaSize())
	b = pool.GetIn(tight)
	fill(b, 0, 50) // its ragged values need more memory
	expectRows(t, finished(t, b, Head{RowsPerBatch: 50}), 0, 50)
	if b.Placed() {
		t.Error("a frame that is larger than the given memory counts as placed in it")
	}
	pool.Put(b)

	roomy := alignedBytes(pool.ArenaSize() + 1<<16)
	spans := make([]Span, 50)
	for i := range spans {
		spans[i] = Span{Rows: 1, Start: int64(i)}
	}
	for range 2 {
		b = pool.GetIn(roomy)
		fill(b, 0, 50)
		f := finished(t, b, Head{RowsPerBatch: 50}, spans...)
		expectRows(t, f, 0, 50)
		if !reflect.DeepEqual(f.Spans, spans) || !b.Placed() {
			t.Fatal("a frame with more spans than foreseen is not in the given memory, which has room for them")
		}
		pool.Put(b)
	}
}

// The other process can write to shared memory when it should not. Then it spoils values, but it cannot change
// which rows there are, or to which record and lease a row belongs.
func TestWhatOthersWriteIntoTheMemoryChangesValuesOnly(t *testing.T) {
	l := layoutOf(t, someFields)
	pool, err := NewPool(l, 60, 60)
	if err != nil {
		t.Fatal(err)
	}
	memory := alignedBytes(pool.ArenaSize() + 1<<16)
	spoil := func() {
		for i := range memory {
			memory[i] ^= 1 // only the lowest bit, so that bools stay bools, which Read checks
		}
	}
	b, rest := pool.GetIn(memory), pool.Get()
	fill(b, 0, 50)
	spoil()
	b.Truncate(40)
	spoil()
	fill(b, 40, 45)
	spoil()
	if err := b.MoveTail(30, rest); err != nil {
		t.Fatal(err)
	}
	spoil()
	f := finished(t, b, Head{RowsPerBatch: 30})
	g := finished(t, rest, Head{RowsPerBatch: 15})
	for i, frame := range []*Frame{f, g} {
		for r := range frame.Rows {
			n := 30*i + r
			if frame.Offsets[r] != int64(10*n) {
				t.Fatalf("row %d has offset %d", n, frame.Offsets[r])
			}
			if got := frame.Columns[3].Row(r); len(got.(string)) != n%5 {
				t.Fatalf("row %d has the text %q", n, got)
			}
		}
	}
}

func TestUsesGoOverTheWire(t *testing.T) {
	payload := binary.LittleEndian.AppendUint64(nil, 3|9<<32)
	payload = binary.LittleEndian.AppendUint64(payload, 1<<32-1)
	got, err := Uses(TypeRelease, payload, nil)
	if want := []Use{{3, 9}, {1<<32 - 1, 0}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for n := range len(payload) {
		if _, err := Uses(TypeForget, payload[:n], nil); (err == nil) != (n%8 == 0) || err != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	var b [FrameAtSize]byte
	(&FrameAt{Use: Use{1, 2}, Offset: 3, Length: 4}).Put(b[:])
	if want := []uint32{1, 2, 3, 0, 4, 0}; !reflect.DeepEqual(View[uint32](b[:]), want) {
		t.Errorf("the uses are written as %v, want the numbers %v", b, want)
	}
}
