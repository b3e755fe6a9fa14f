package feed

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
)

// shuffled is a lease of two blocks of a shuffled pass with a gap between them.
//
//	order   100      150   160      200
//	        [piece 0 )gap  [piece 1 )
//	offset  1000..1050     20..60
func shuffled() *lease {
	return &lease{id: 1, end: 200, grant: &pb.Grant{LeaseStart: 100, LeaseEnd: 200, Identity: "p", Pieces: []*pb.Piece{
		{OrderStart: 100, Segment: 7, Start: 1000, End: 1050}, {OrderStart: 160, Segment: 3, Start: 20, End: 60},
	}}}
}

func TestPositionsOfPiecesTurnIntoOrderAndBack(t *testing.T) {
	l := shuffled()
	for _, c := range []struct {
		pos   int64
		piece int
	}{{100, 0}, {149, 0}, {150, 1}, {160, 1}, {199, 1}, {200, 2}} {
		if got := l.pieceAt(c.pos); got != c.piece {
			t.Errorf("position %d is in piece %d, want %d", c.pos, got, c.piece)
		}
	}
	for _, c := range []struct {
		piece       int
		offset, end int64
		want        int64
	}{
		{0, 1010, 200, 110},
		{0, 1050, 200, 160}, // the gap is settled together with the record before it
		{0, 1099, 200, 160}, // a record may end after the end of its piece
		{1, 40, 200, 180},
		{1, 60, 200, 200},
		{1, 40, 170, 170}, // the tail was stolen
		{0, 1050, 155, 155},
	} {
		if got := l.after(c.piece, c.offset, c.end); got != c.want {
			t.Errorf("offset %d of piece %d, end %d, is at %d of the order, want %d", c.offset, c.piece, c.end, got, c.want)
		}
	}
	r, from, any := l.span(1, 170, 190)
	if !any || r.Segment != 3 || r.Start != 20 || r.End != 50 || from.Offset != 30 {
		t.Errorf("[170, 190) of the order is %+v from %+v (any: %v), want [20, 50) of segment 3 from 30", r, from, any)
	}
	if _, _, any := l.span(1, 190, 190); any {
		t.Error("an empty span at the end has records")
	}
}

// rowsOf makes a frame of one row per offset.
func rowsOf(t rapid.TB, l *frame.Layout, rows int, runs []run, offsets []int64) *work {
	b, err := frame.NewBuilder(l, max(1, len(offsets)))
	if err != nil {
		t.Fatal(err)
	}
	copy(b.Offsets, offsets)
	b.SetRows(len(offsets))
	return &work{b: b, rows: rows, runs: runs}
}

func TestABatchOverSeveralLeasesTakesAPrefixOfEach(t *testing.T) {
	layout, err := frame.NewLayout([]dataset.Field{{Name: "x", DType: dataset.Int64}})
	if err != nil {
		t.Fatal(err)
	}
	plain := func(id hold.Lease, start, end int64) *lease {
		return &lease{id: id, end: end, grant: &pb.Grant{Pieces: []*pb.Piece{{OrderStart: start, Start: start, End: end}}}}
	}
	a, b := plain(1, 0, 30), plain(2, 100, 120)
	w := rowsOf(t, layout, 2, []run{
		{l: a, rows: 3, start: 0, from: 0, to: 30}, {l: b, rows: 2, start: 105, from: 100, to: 120},
	}, []int64{0, 10, 20, 105, 112})
	copy(w.b.Times, []int64{7, 0, 5, 0, -4})
	sizes, takes := w.takes(nil, nil)
	if got := fmt.Sprint(sizes, takes); got != "[1 2 1] [{1 20 {2 7 7}} {1 30 {1 5 5}} {2 112 {1 0 0}} {2 120 {1 -4 -4}}]" {
		t.Error(got)
	}
	if got := fmt.Sprint(w.times, w.runs[0].times, w.runs[1].times); got != "[{7 7} {5 5} {0 0} {-4 -4}] {5 7} {-4 -4}" {
		t.Error(got)
	}
	rest := &work{b: mustBuilder(t, layout, 8), rows: w.rows}
	if err := w.split(1, rest); err != nil {
		t.Fatal(err)
	}
	sizes, takes = w.takes(nil, nil)
	if got := fmt.Sprint(sizes, takes); got != "[1] [{1 20 {2 7 7}}]" {
		t.Error(got)
	}
	clear(w.b.Times)
	if w.takes(nil, nil); len(w.times) != 0 {
		t.Errorf("no row has a time, but the frame has the times %v", w.times)
	}
	sizes, takes = rest.takes(nil, nil)
	if got := fmt.Sprint(sizes, takes, rest.b.Offsets[:3]); got != "[2 1] [{1 30 {1 5 5}} {2 112 {1 0 0}} {2 120 {1 -4 -4}}] [20 105 112]" {
		t.Error(got)
	}
	if r := rest.runs[0]; r.from != 20 || r.start != 20 || r.to != 30 || r.rows != 1 {
		t.Errorf("after the split the first run of the rest is %+v, want one row, [20, 30)", r)
	}
}

func mustBuilder(t rapid.TB, l *frame.Layout, rows int) *frame.Builder {
	b, err := frame.NewBuilder(l, rows)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// However a frame is split, its batches have the same takes of the same leases.
func TestSplittingAFrameChangesNoBatch(t *testing.T) {
	layout, err := frame.NewLayout([]dataset.Field{{Name: "x", DType: dataset.Int64}})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		var runs []run
		var offsets []int64
		at := int64(0)
		for id := range rapid.IntRange(1, 5).Draw(t, "runs") {
			n, gap := rapid.IntRange(1, 6).Draw(t, "rows"), int64(rapid.IntRange(0, 3).Draw(t, "gap"))
			l := &lease{id: hold.Lease(id/2 + 1), grant: &pb.Grant{Pieces: []*pb.Piece{{OrderStart: at, Start: at + 1000, End: at + 2000}}}}
			r := run{l: l, rows: n, from: at, start: at + 1000 + gap}
			for i := range n {
				offsets = append(offsets, at+1000+gap+int64(i)*10)
			}
			at += gap + int64(n)*10
			r.to = at
			runs = append(runs, r)
		}
		rows := rapid.IntRange(1, 7).Draw(t, "batch")
		w := rowsOf(t, layout, rows, slices.Clone(runs), offsets)
		wantSizes, wantTakes := w.takes(nil, nil)
		var sizes []int32
		var takes []hold.Take
		for w != nil {
			next := (*work)(nil)
			if n := w.batches(); n > 1 {
				next = &work{b: mustBuilder(t, layout, len(offsets)), rows: w.rows}
				if err := w.split(rapid.IntRange(1, n-1).Draw(t, "split"), next); err != nil {
					t.Fatal(err)
				}
			}
			s, c := w.takes(nil, nil)
			sum := 0
			for _, r := range w.runs {
				sum += r.rows
			}
			if sum != w.b.Rows() {
				t.Fatalf("the runs have %d rows, the frame has %d", sum, w.b.Rows())
			}
			sizes, takes = append(sizes, s...), append(takes, c...)
			w = next
		}
		if !slices.Equal(sizes, wantSizes) || !slices.Equal(takes, wantTakes) {
			t.Fatalf("split, the sizes and takes are %v %v\nwant %v %v", sizes, takes, wantSizes, wantTakes)
		}
	})
}
