package report

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/proof/demo/clicklog"
)

const (
	rows  = 10
	total = 800 // 100 records in each of the 8 files
)

func newTruth(t *testing.T) *clicklog.Truth {
	t.Helper()
	dir := t.TempDir()
	o := clicklog.Options{LogDir: filepath.Join(dir, "log"), TruthDir: filepath.Join(dir, "truth"), Records: total, Seed: 5}
	if _, err := clicklog.Write(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	truth, err := clicklog.ReadTruth(o.TruthDir)
	if err != nil {
		t.Fatal(err)
	}
	return truth
}

// writer writes a journal as a trainer does. The test sets its clock.
type writer struct {
	t      *testing.T
	truth  *clicklog.Truth
	path   string
	now    time.Duration
	number uint64
	bytes  []byte
}

func newWriter(t *testing.T, truth *clicklog.Truth, rank, pid int) *writer {
	w := &writer{t: t, truth: truth, path: filepath.Join(t.TempDir(), "t.journal"), now: time.Second}
	about, err := json.Marshal(About{Rank: rank, PID: pid, Rate: 1000, BatchRows: rows})
	if err != nil {
		t.Fatal(err)
	}
	w.entry(Open, 0, 0, about)
	w.entry(Ready, 0, 0, nil)
	for i, f := range truth.Files {
		w.entry(Segment, 0, 0, []byte(`{"segment": `+string(rune('0'+i))+`, "name": "log/`+f.Name+`"}`))
	}
	return w
}

func (w *writer) entry(kind Kind, number uint64, rows int, payload []byte) {
	e := []byte("HRJ1")
	e = binary.LittleEndian.AppendUint32(e, uint32(kind))
	e = binary.LittleEndian.AppendUint64(e, number)
	e = binary.LittleEndian.AppendUint64(e, uint64(w.now))
	e = binary.LittleEndian.AppendUint32(e, uint32(rows))
	e = binary.LittleEndian.AppendUint32(e, uint32(len(payload)))
	e = append(e, payload...)
	w.bytes = binary.LittleEndian.AppendUint32(append(w.bytes, e...), crc32.ChecksumIEEE(e))
}

// yield writes YIELDED for the batch of records [first, first+rows) of one file.
func (w *writer) yield(first int) {
	w.number++
	p := binary.LittleEndian.AppendUint32(nil, 1)
	p = binary.LittleEndian.AppendUint32(p, 0)
	p = binary.LittleEndian.AppendUint64(p, uint64(first/100))
	p = binary.LittleEndian.AppendUint64(p, rows)
	for n := first; n < first+rows; n++ {
		p = binary.LittleEndian.AppendUint64(p, uint64(w.truth.Offsets[n]))
	}
	for n := first; n < first+rows; n++ {
		p = binary.LittleEndian.AppendUint64(p, w.truth.Checks[n])
	}
	w.entry(Yielded, w.number, rows, p)
}

func (w *writer) begin(first int) {
	w.yield(first)
	w.entry(Begin, w.number, 0, nil)
}

func (w *writer) applied(prediction float32) {
	var p []byte
	for range rows {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(prediction))
	}
	w.entry(Applied, w.number, rows, p)
}

// batch writes all entries of a batch, which takes 10 ms.
func (w *writer) batch(first int) {
	w.begin(first)
	w.now += 10 * time.Millisecond
	w.applied(0.25)
	w.entry(Stepped, w.number, 0, nil)
}

func (w *writer) batches(first, end int) {
	for ; first < end; first += rows {
		w.batch(first)
	}
}

func (w *writer) journal() *Journal {
	w.t.Helper()
	if err := os.WriteFile(w.path, w.bytes, 0o600); err != nil {
		w.t.Fatal(err)
	}
	j, err := readJournal(w.path, w.truth)
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

func compute(t *testing.T, truth *clicklog.Truth, kills []Kill, writers ...*writer) *Report {
	t.Helper()
	var journals []*Journal
	for _, w := range writers {
		journals = append(journals, w.journal())
	}
	r, err := Compute(truth, journals, kills)
	if err != nil {
		t.Fatal(err)
	}
	if r.Once+r.Twice+r.Never != r.Records || r.TwiceUnstepped+r.TwiceUnexplained != r.Twice {
		t.Fatalf("the counts do not add up: %+v", r.Counts)
	}
	return r
}

func TestAnInputAppliedOnceIsClean(t *testing.T) {
	truth := newTruth(t)
	w := newWriter(t, truth, 0, 100)
	w.batches(0, total)
	r := compute(t, truth, nil, w)
	if !r.Clean || r.Once != total || r.BatchRows != rows || r.WorkerShare["0"] != 1 {
		t.Errorf("%+v", r)
	}
	if math.Abs(r.MakespanRatio-1) > 1e-9 {
		t.Errorf("a trainer that never waits has a makespan of %v times the ideal, want 1", r.MakespanRatio)
	}
}

func TestOneLossAndOneRepeatAreSeen(t *testing.T) {
	truth := newTruth(t)
	a, b := newWriter(t, truth, 0, 100), newWriter(t, truth, 1, 101)
	a.batches(0, 400)
	b.batches(410, total) // batch 400 is lost
	b.batch(120)          // batch 120, which a has applied, comes again
	r := compute(t, truth, nil, a, b)
	if r.Never != rows || r.Twice != rows || r.Once != total-2*rows || r.Redelivered != rows {
		t.Errorf("%+v", r.Counts)
	}
	if r.TwiceUnexplained != rows || r.Clean {
		t.Errorf("no trainer was killed, but the repeat is explained: %+v", r.Counts)
	}
}

func TestABatchInDoubtCountsAgainstUsBothWays(t *testing.T) {
	truth := newTruth(t)
	a, b := newWriter(t, truth, 0, 100), newWriter(t, truth, 1, 101)
	a.batches(0, 400)
	a.begin(400) // then it is killed
	kills := []Kill{{What: "trainer", Name: "trainer 0", PID: 100, At: int64(a.now)}}
	b.now = a.now // it begins after that

	b.batches(410, total)
	if r := compute(t, truth, kills, a, b); r.Never != rows || r.Clean {
		t.Errorf("no trainer has finished the batch in doubt: %+v", r.Counts)
	}
	b.batch(400)
	if r := compute(t, truth, kills, a, b); r.Never != 0 || r.TwiceUnstepped != rows || r.InDoubt != rows || !r.Clean {
		t.Errorf("another trainer has finished the batch in doubt: %+v", r.Counts)
	}
}

func TestABatchThatWasOnlyYieldedIsRedeliveredAndNotInDoubt(t *testing.T) {
	truth := newTruth(t)
	a, b := newWriter(t, truth, 0, 100), newWriter(t, truth, 1, 101)
	a.batches(0, 400)
	a.yield(400) // then it is killed
	kills := []Kill{{What: "trainer", Name: "trainer 0", PID: 100, At: int64(a.now)}}
	b.batches(400, total)
	r := compute(t, truth, kills, a, b)
	if r.Once != total || r.Redelivered != rows || r.InDoubt != 0 || !r.Clean {
		t.Errorf("%+v", r.Counts)
	}
}

func TestARepeatIsExplainedOnlyByTheLastBatchOfAKilledTrainer(t *testing.T) {
	truth := newTruth(t)
	const ms = int64(time.Millisecond)
	stepped := func(a *writer) { a.batch(400) }
	unstepped := func(a *writer) {
		a.begin(400)
		a.applied(0.25)
	}
	tookAnother := func(a *writer) {
		unstepped(a)
		a.batch(0) // so batch 0 comes twice without an explanation
	}
	for _, c := range []struct {
		name   string
		last   func(a *writer)
		what   string
		killed int64         // time from its last entry to the kill
		again  time.Duration // time from that entry until another begins batch 400
		want   int
	}{
		{"killed before step() returned", unstepped, "trainer", 10 * ms, time.Second, rows},
		{"killed right after step() returned", stepped, "trainer", ms, time.Second, 0},
		{"killed when another had begun", unstepped, "trainer", 1000 * ms, 500 * time.Millisecond, 0},
		{"ended by itself, which was seen late", unstepped, StoppedTrainer, 1000 * ms, 500 * time.Millisecond, rows},
		{"killed with a later batch", tookAnother, "trainer", 10 * ms, time.Second, 0},
	} {
		a, b := newWriter(t, truth, 0, 100), newWriter(t, truth, 1, 101)
		a.batches(0, 400)
		c.last(a)
		kills := []Kill{{What: c.what, Name: "trainer 0", PID: 100, At: int64(a.now) + c.killed}}
		b.batches(410, total)
		b.now = a.now + c.again
		b.batch(400)
		r := compute(t, truth, kills, a, b)
		if r.TwiceUnstepped != c.want || r.Clean != (c.want > 0) {
			t.Errorf("%s: %+v", c.name, r.Counts)
		}
	}
}

// A trainer that still runs has stepped the batch. Another one had it in hand later and was killed. That
// kill does not explain why the batch came again.
func TestAKillExplainsNoApplicationBeforeIt(t *testing.T) {
	truth := newTruth(t)
	a, b := newWriter(t, truth, 0, 100), newWriter(t, truth, 1, 101)
	a.batches(0, total)
	b.now = a.now + time.Minute
	b.begin(400) // then it is killed
	kills := []Kill{{What: "trainer", Name: "trainer 1", PID: 101, At: int64(b.now)}}
	r := compute(t, truth, kills, a, b)
	if r.TwiceUnexplained != rows || r.TwiceUnstepped != 0 || r.Clean {
		t.Errorf("%+v", r.Counts)
	}
}

func TestRowsThatAreNotAsWrittenAreForeign(t *testing.T) {
	truth := newTruth(t)
	w := newWriter(t, truth, 0, 100)
	w.batches(0, total)
	truth.Checks[17]++
	r := compute(t, truth, nil, w)
	if r.Foreign != 1 || r.Never != 1 || r.Clean {
		t.Errorf("%+v", r.Counts)
	}
}

func TestATornTailIsReadAsNotWrittenAndOnlyAllowedToTheKilled(t *testing.T) {
	truth := newTruth(t)
	w := newWriter(t, truth, 0, 100)
	w.batches(0, total)
	w.begin(0)
	w.bytes = w.bytes[:len(w.bytes)-5]
	kills := []Kill{{What: "trainer", Name: "trainer 0", PID: 100, At: int64(w.now)}}
	if r := compute(t, truth, kills, w); r.Once != total {
		t.Errorf("%+v", r.Counts)
	}
	_, err := Compute(truth, []*Journal{w.journal()}, nil)
	if err == nil || !strings.Contains(err.Error(), "nobody killed process 100") {
		t.Errorf("a torn journal of a trainer that was not killed: %v", err)
	}
}

func TestADamagedJournalIsRefusedWithItsOffset(t *testing.T) {
	truth := newTruth(t)
	w := newWriter(t, truth, 0, 100)
	w.batches(0, 100)
	w.bytes[len(w.bytes)/2] ^= 1
	if err := os.WriteFile(w.path, w.bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readJournal(w.path, truth); err == nil || !strings.Contains(err.Error(), "offset") {
		t.Errorf("got %v", err)
	}
}

func TestTheIdealCountsOnlyTheLivingAtTheirRates(t *testing.T) {
	lives := []life{{0, 2e9, 100}, {0, 10e9, 50}, {4e9, 10e9, 100}}
	// 2 s at 150/s, 2 s at 50/s, then 150/s: 550 records take 5 s.
	if got := idealEnd(550, 0, lives); math.Abs(got-5e9) > 1 {
		t.Errorf("got %v", got)
	}
	// Beyond the last death at the last rate: 300 + 100 + 900, then 150 more.
	if got := idealEnd(1450, 0, lives); math.Abs(got-11e9) > 10 {
		t.Errorf("got %v", got)
	}
}

func TestAUCCountsPairsAndTiesHalf(t *testing.T) {
	key := func(p float32, label uint64) uint64 { return uint64(math.Float32bits(p))<<1 | label }
	for _, c := range []struct {
		keys []uint64
		want float64
	}{
		{[]uint64{key(.1, 0), key(.2, 1)}, 1},
		{[]uint64{key(.1, 1), key(.2, 0)}, 0},
		{[]uint64{key(.1, 1), key(.1, 0)}, 0.5},
		{[]uint64{key(.1, 0), key(.3, 1), key(.2, 1), key(.25, 0)}, 0.75},
		{[]uint64{key(.1, 1)}, 0.5},
	} {
		if got := auc(c.keys); got != c.want {
			t.Errorf("%v: %v, want %v", c.keys, got, c.want)
		}
	}
}

func FuzzJournal(f *testing.F) {
	truth := &clicklog.Truth{}
	f.Add([]byte("HRJ1"))
	path := filepath.Join(f.TempDir(), "fuzz.journal")
	f.Fuzz(func(t *testing.T, b []byte) {
		w := &writer{t: t}
		if len(b) > 2 {
			w.entry(Kind(b[0]%10), uint64(b[1]%3), int(b[2]), b[3:])
			w.entry(Kind(b[1]%10), uint64(b[1]%3), int(b[2]), b[3:])
		}
		w.bytes = append(w.bytes, b...)
		if err := os.WriteFile(path, w.bytes, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = readJournal(path, truth)
	})
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 2_000_000: "2,000,000"} {
		if got := Thousands(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
