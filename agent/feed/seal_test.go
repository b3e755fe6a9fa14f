package feed

import (
	"fmt"
	"testing"
	"time"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/proof/memsource"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/landing"
)

// frames returns the rows of each frame that waits for the sender.
func (st *stream) frames() (rows []int) {
	for _, w := range st.queue {
		rows = append(rows, w.b.Rows())
	}
	return rows
}

// Rows of pushed records wait for a full batch only while more rows may come.
func TestRowsOfAWholeTransactionDoNotWaitForMore(t *testing.T) {
	dataset.Register(landing.Kind)
	dataset.Register(memsource.Kind)
	const pushed, other = "landing: {}", "memory: {log: x}"
	for _, c := range []struct {
		what, source string
		rows         int // decoded rows; a batch has 10
		allOut       bool
		silence      time.Duration // since the last frame
		want         string        // the rows of the frames that leave
	}{
		{"after a silence", pushed, 3, true, 2 * time.Hour, "[3]"},
		{"not so long after a frame", pushed, 3, true, time.Minute, "[]"},
		{"full batches do not wait", pushed, 23, true, time.Minute, "[20]"},
		{"all of it after a silence", pushed, 23, true, 2 * time.Hour, "[23]"},
		{"while the master may have more", pushed, 23, false, 2 * time.Hour, "[]"},
		{"of another source", other, 23, true, 2 * time.Hour, "[]"},
	} {
		spec, err := dataset.Parse([]byte("name: clicks\n"+c.source+"\ndecode: {format: lines, columns: [{name: line, path: $value, dtype: bytes}]}\n"), "")
		if err != nil {
			t.Fatal(err)
		}
		desk := Config{Linger: time.Hour, BufferBytes: 1 << 20}
		st := &stream{t: &trainer{srv: &Server{cfg: desk}}, ds: &Dataset{Spec: spec}, rows: 10, maxWait: time.Hour, pace: 1000, window: 100, allOut: c.allOut,
			wakeCut: make(chan struct{}, 1), wakeSend: make(chan struct{}, 1)}
		if err := st.compile(nil); err != nil {
			t.Fatal(err)
		}
		for range 3 { // so that a frame may have several batches
			st.pool.Grow()
		}
		cut := newCutter(st)
		cut.left = time.Now().Add(-c.silence)
		end := int64(c.rows)
		l := &lease{grant: &pb.Grant{LeaseEnd: end, Pieces: []*pb.Piece{{End: end}}}, end: end}
		cut.rd = &reading{l: l, free: make(chan *sources.Batch, 1)}
		cut.chunk.batch = &sources.Batch{Arena: make([]byte, end), End: end}
		for i := range int32(end) {
			cut.chunk.batch.Recs = append(cut.chunk.batch.Recs, sources.Record{Offset: int64(i), Next: int64(i) + 1, Value: [2]int32{i, i + 1}})
		}
		for cut.chunk.batch != nil {
			cut.append(l)
		}
		if len(st.queue) > 0 {
			t.Fatalf("%s: frames of %v rows left before all was read, want none", c.what, st.frames())
		}
		cut.endTransaction()
		if got := fmt.Sprint(st.frames()); got != c.want {
			t.Errorf("%s: frames of %s rows left, want %s", c.what, got, c.want)
		}
	}
}
