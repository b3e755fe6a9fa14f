package report

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/proof/demo/clicklog"
)

// liveRun is a run over a topic of two partitions, with stripes of one batch: batch b of the log is batch
// b/2 of partition b%2.
type liveRun struct {
	t     *testing.T
	dir   string
	truth *clicklog.Truth
}

func newLiveRun(t *testing.T) *liveRun {
	r := &liveRun{t: t, dir: t.TempDir()}
	f := r.folders()
	o := clicklog.Options{LogDir: filepath.Join(r.dir, "log"), TruthDir: f.Truth, Records: total, Seed: 5}
	m, err := clicklog.Write(t.Context(), o)
	if err == nil {
		err = m.SetTopic(o.LogDir, o.TruthDir, clicklog.Topic{Name: "clicks", Partitions: 2, Stripe: rows})
	}
	if err == nil {
		r.truth, err = clicklog.ReadTruth(o.TruthDir)
	}
	for _, dir := range append(f.Groups, f.Journals) {
		if err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	r.produced(total / rows)
	return r
}

func (r *liveRun) folders() Folders {
	return Folders{Truth: filepath.Join(r.dir, "truth"), Journals: filepath.Join(r.dir, "journals"),
		Groups: []string{filepath.Join(r.dir, "group"), filepath.Join(r.dir, "careful")}}
}

// sent is the time at which batch b was produced: one every 10 ms.
func sent(b int) time.Duration { return time.Second + time.Duration(b)*10*time.Millisecond }

// produced writes down that the first `batches` batches of the log are in the topic.
func (r *liveRun) produced(batches int) {
	var lines []byte
	for b := range batches {
		line, err := json.Marshal(Produced{Partition: b % 2, First: int64(b / 2 * rows), Records: rows, Sent: int64(sent(b)), Acked: int64(sent(b))})
		if err != nil {
			r.t.Fatal(err)
		}
		lines = append(append(lines, line...), '\n')
	}
	if err := os.WriteFile(filepath.Join(r.folders().Truth, ProducedName), lines, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// journal writes the journal of a trainer that applies these batches, each 5 ms after its production.
func (r *liveRun) journal(dir, check string, pid int, batches ...int) {
	about, err := json.Marshal(About{PID: pid, BatchRows: rows, Check: check})
	if err != nil {
		r.t.Fatal(err)
	}
	w := &writer{t: r.t, truth: r.truth, now: time.Second}
	w.entry(Open, 0, 0, about)
	w.entry(Segment, 0, 0, []byte(`{"segment": 0, "name": "clicks/0"}`))
	w.entry(Segment, 0, 0, []byte(`{"segment": 1, "name": "clicks/1"}`))
	for _, b := range batches {
		w.now = max(w.now, sent(b)+5*time.Millisecond)
		w.number++
		p := binary.LittleEndian.AppendUint64(nil, 1)
		p = binary.LittleEndian.AppendUint64(p, uint64(b%2))
		p = binary.LittleEndian.AppendUint64(p, rows)
		for i := range rows {
			p = binary.LittleEndian.AppendUint64(p, uint64(b/2*rows+i))
		}
		for i := range rows {
			sum := r.truth.Checks[b*rows+i]
			if check != "" {
				sum = uint64(r.truth.Lines[b*rows+i])
			}
			p = binary.LittleEndian.AppendUint64(p, sum)
		}
		w.entry(Yielded, w.number, rows, p)
		w.entry(Begin, w.number, 0, nil)
		w.applied(0.25)
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("trainer-0-%d.journal", pid)), w.bytes, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *liveRun) kills(dir string, kills ...Kill) {
	text, err := json.Marshal(kills)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, KillsName), text, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func span(from, to int) (all []int) {
	for ; from < to; from++ {
		all = append(all, from)
	}
	return all
}

func TestOursAndTheConsumerGroupAreCountedByTheSameRules(t *testing.T) {
	r := newLiveRun(t)
	f := r.folders()
	r.journal(f.Journals, "", 1, span(0, total/rows)...)
	// The group's first process learns 30 batches and is killed. Its next process begins at the last
	// commit, 20 batches earlier. Batch 50 is committed and never learned.
	r.journal(f.Groups[0], "crc32", 2, span(0, 30)...)
	r.journal(f.Groups[0], "crc32", 3, append(span(10, 50), span(51, total/rows)...)...)
	// The careful group commits after each batch: one batch, not yet committed, comes again.
	r.journal(f.Groups[1], "crc32", 4, span(0, 30)...)
	r.journal(f.Groups[1], "crc32", 5, span(29, total/rows)...)
	broker := Kill{What: "broker", Name: "broker", At: int64(sent(40)) - 1, Back: int64(sent(40)) + 1}
	r.kills(f.Journals, broker)
	r.kills(f.Groups[0], Kill{What: "consumer", Name: "consumer-0", PID: 2, At: int64(sent(31))}, broker)
	r.kills(f.Groups[1], Kill{What: "consumer", Name: "careful-0", PID: 4, At: int64(sent(31))}, broker)
	got, err := f.Compute()
	if err != nil {
		t.Fatal(err)
	}
	if got.Once != total || got.Twice+got.Never+got.Foreign+got.Repeats != 0 || !got.Clean {
		t.Errorf("ours: %+v", got.Counts)
	}
	g, careful := got.Groups[0], got.Groups[1]
	if g.Twice != 20*rows || g.Repeats != 20*rows || g.Never != rows || g.Once != total-21*rows || g.Foreign != 0 {
		t.Errorf("the group: %+v", g)
	}
	if careful.Twice != rows || careful.Never != 0 || careful.Once != total-rows {
		t.Errorf("the group that commits after each batch: %+v", careful)
	}
	if got.Live.P50 != 5 || got.Live.Max != 5 || got.MakespanRatio != 0 {
		t.Errorf("each record was learned 5 ms after it was produced: %+v", got.Live)
	}
	if ms := got.Kills[0].ReleaseMS; ms == nil || *ms < 15 || *ms > 15.1 { // batch 41, 5 ms after it was produced
		t.Errorf("first record produced after the broker's death: applied after %v ms, want 15 ms", *ms)
	}
	var text strings.Builder
	got.Print(&text)
	for _, want := range []string{"twice or more", "200", "consumer-0, broker", "careful-0, broker"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
}

func TestRecordsOfTheGroupThatAreNotAsProducedAreNotClean(t *testing.T) {
	r := newLiveRun(t)
	f := r.folders()
	f.Groups = f.Groups[:1]
	r.journal(f.Journals, "", 1, span(0, total/rows)...)
	r.truth.Lines[7]++
	r.journal(f.Groups[0], "crc32", 2, span(0, total/rows)...)
	got, err := f.Compute()
	if err != nil {
		t.Fatal(err)
	}
	if got.Groups[0].Foreign != 1 || got.Clean {
		t.Errorf("clean %v, %+v", got.Clean, got.Groups[0])
	}
}

func TestAProducerThatDidNotWriteEveryRecordOnceIsNotBelieved(t *testing.T) {
	r := newLiveRun(t)
	r.journal(r.folders().Journals, "", 1, span(0, total/rows)...)
	r.produced(total/rows - 1)
	if _, err := r.folders().Compute(); err == nil || !strings.Contains(err.Error(), "must end at") {
		t.Errorf("got %v", err)
	}
	path := filepath.Join(r.folders().Truth, ProducedName)
	r.produced(total / rows)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	if err := os.WriteFile(path, append(text, first...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.folders().Compute(); err == nil || !strings.Contains(err.Error(), "do not follow") {
		t.Errorf("got %v", err)
	}
}
