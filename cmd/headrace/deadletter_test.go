package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/deadletter"
	"github.com/headrace/headrace/internal/view"
)

// badClicks writes an input of n records. Every tenth record is bad, from record 5 on. It returns the sum
// and the number of the good records, and the bad ones by offset.
func (w *world) badClicks(n int) (sum, good int, bad map[int]string) {
	var b strings.Builder
	bad = map[int]string{}
	for i := range n {
		line := fmt.Sprintf("%d\t%d\tuser-%d", i%2, i, i%7)
		if i%10 == 5 {
			line = fmt.Sprintf("%d\tno-number-%d\tuser", i%2, i)
			bad[b.Len()] = line
		} else {
			sum += i
			good++
		}
		b.WriteString(line + "\n")
	}
	w.write("data/a.tsv", b.String())
	return sum, good, bad
}

const skipSpec = "  on_error: skip\n"

// lettersWritten waits until the dead letters of clicks are written. A master that ends takes 5 s for them at
// most. On a busy machine that may be too little, and then the next master writes the rest.
func (w *world) lettersWritten(up *proc) {
	w.t.Helper()
	up.until("all dead letters are written", func() bool {
		v := decoded[view.Status](w.t, w.ok("dataset", "status", "clicks", "-o", "json"))
		return v.Bad != nil && v.Bad.Unwritten == 0
	})
}

// Bad records are left out, and each good one is in the model once. The folder has the dead letters with
// their bytes. status, describe and the list agree with them.
func TestBadRecordsAreLeftOutAndTheirBytesAreKept(t *testing.T) {
	for _, tc := range []struct{ name, more string }{{"any", ""}, {"strict", "order: strict\n"}, {"shuffled", "shuffle: {seed: 3, block: 1KiB}\n"}} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			sum, good, bad := w.badClicks(2000)
			at := w.path("letters")
			w.write("clicks.yaml", clicksSpec+skipSpec+"dead_letter: {files: "+at+"}\n"+tc.more)
			r := w.run("run", "-f", "clicks.yaml", "--", w.self(""))
			rows, got := read(t, r.out)
			if r.code != exitOK || int(rows) != good || int(got) != sum {
				t.Fatalf("%d rows with sum %d, want %d with %d: %+v", rows, got, good, sum, r)
			}
			w.lettersWritten(w.up())
			v := decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json"))
			if v.State != "done" || v.Bad == nil || v.Bad.Records != uint64(len(bad)) || v.Bad.Columns["number"] != uint64(len(bad)) || v.Bad.Unwritten != 0 {
				t.Errorf("the status is %+v with the bad records %+v, want done and %d bad in column number", v, v.Bad, len(bad))
			}
			if v.Counts.Acked+v.Counts.Excluded != v.Counts.Listed {
				t.Errorf("the counts are %+v, want all listed units acked or excluded", v.Counts)
			}
			text, err := os.ReadFile(at + "/clicks.jsonl")
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			without := maps.Clone(bad)
			for _, line := range lines { // one may be there twice, if the first master ended before it had noted the letter
				l, err := deadletter.Decode([]byte(line))
				if err != nil {
					t.Fatal(err)
				}
				want, is := bad[int(l.Offset)]
				if !is || string(l.Value) != want || !l.Whole() || l.Column != "number" || l.Kind != "decode" || l.Name != "a.tsv" {
					t.Fatalf("the letter %+v has the value %q, want %q", l, l.Value, want)
				}
				delete(without, int(l.Offset))
			}
			if len(without) > 0 {
				t.Errorf("these bad records have no letter: %v", without)
			}
			list := decoded[[]deadletter.Letter](t, w.ok("deadletter", "list", "clicks", "-o", "json"))
			if len(list) != len(bad) {
				t.Errorf("%d letters are listed, but %d records are bad", len(list), len(bad))
			}
			if out := w.ok("deadletter", "show", "clicks", list[3].ID); !strings.Contains(out, "no-number") || !strings.Contains(out, "column    number") {
				t.Error(out)
			}
			if out := w.ok("deadletter", "show", "clicks", list[3].ID, "--raw"); out != string(list[3].Value) {
				t.Errorf("show --raw printed %q, want the bytes of the record, %q", out, list[3].Value)
			}
			if out := w.ok("dataset", "describe", "clicks"); !strings.Contains(out, "column number 200") || !strings.Contains(out, "bad_record: ") {
				t.Error(out)
			}
		})
	}
}

// A record over max_record is left out too, if it is known where the next record begins.
func TestARecordOverTheLimitIsLeftOut(t *testing.T) {
	w := newWorld(t)
	var b strings.Builder
	sum, good, bad := 0, 0, map[int64]int{}
	for i := range 300 {
		line := fmt.Sprintf("%d\t%d\tuser-%d", i%2, i, i%7)
		if i%40 == 7 {
			line += strings.Repeat("x", 5000+i)
			bad[int64(b.Len())] = len(line)
		} else {
			sum, good = sum+i, good+1
		}
		b.WriteString(line + "\n")
	}
	w.write("data/a.tsv", b.String())
	at := w.path("letters")
	w.write("clicks.yaml", strings.Replace(clicksSpec, "files: {", "files: {max_record: 4KiB, ", 1)+skipSpec+"dead_letter: {files: "+at+"}\n")
	r := w.run("run", "-f", "clicks.yaml", "--", w.self(""))
	rows, got := read(t, r.out)
	if r.code != exitOK || int(rows) != good || int(got) != sum {
		t.Fatalf("%d rows with sum %d, want %d with %d: %+v", rows, got, good, sum, r)
	}
	w.lettersWritten(w.up())
	text, err := os.ReadFile(at + "/clicks.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	without := maps.Clone(bad)
	for line := range strings.Lines(string(text)) { // one may be there twice, if the first master ended before it had noted the letter
		l, err := deadletter.Decode([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if bad[l.Offset] == 0 || int(l.Size) != bad[l.Offset] || len(l.Value) != bad[l.Offset] || !strings.Contains(l.Reason, "longer than max_record") {
			t.Errorf("the letter of offset %d has %d bytes and the reason %s, want a record that is too long", l.Offset, l.Size, l.Reason)
		}
		delete(without, l.Offset)
	}
	if len(without) > 0 {
		t.Errorf("these bad records have no letter: %v", without)
	}
}

// The dataset stops at max_bad, and says which column, how many records and where. With a higher limit it
// goes on, and nothing is lost or repeated.
func TestTooManyBadRecordsStopTheDataset(t *testing.T) {
	w := newWorld(t)
	_, good, bad := w.badClicks(300)
	spec := clicksSpec + skipSpec
	w.write("clicks.yaml", spec+"max_bad: 7\n")
	p := w.start("run", "-f", "clicks.yaml", "--", w.self(""))
	p.until("the failure is told", func() bool { return strings.Contains(p.err.String(), "dataset stopped") })
	p.signal(os.Interrupt)
	p.wait()
	up := w.up()
	v := decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json"))
	for _, want := range []string{"8 records are bad, and max_bad is 7 (column number 8)", "a.tsv at offset ", "no-number-", "raise max_bad", "`headrace dataset resume clicks`"} {
		if !strings.Contains(v.Reason, want) {
			t.Errorf("the reason does not say %q: %s", want, v.Reason)
		}
	}
	if v.State != "failed" || v.Bad.Records != 7 {
		t.Errorf("%+v %+v", v, v.Bad)
	}
	up.stop()
	w.write("clicks.yaml", spec+"max_bad: 50%\n")
	r := w.run("run", "-f", "clicks.yaml", "--", w.self(""))
	if r.code != exitOK || !strings.Contains(r.err, "it is resumed (its spec has changed, max_bad") {
		t.Fatalf("with a higher limit the run ended with %+v", r)
	}
	w.lettersWritten(w.up())
	v = decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json"))
	if v.State != "done" || v.Bad.Records != uint64(len(bad)) || v.Counts.Acked+v.Counts.Excluded != v.Counts.Listed || int(v.Records.Rows) != good {
		t.Errorf("the status is %+v, records %+v, bad %+v", v, v.Records, v.Bad)
	}
	if list := decoded[[]deadletter.Letter](t, w.ok("deadletter", "list", "clicks", "-o", "json")); len(list) != len(bad) {
		t.Errorf("%d dead letters, want %d", len(list), len(bad))
	}
}

// Dead letters are pushed into another dataset, each once.
func TestDeadLettersAreReplayedIntoALandingDataset(t *testing.T) {
	w := newWorld(t)
	_, _, bad := w.badClicks(300)
	w.write("clicks.yaml", clicksSpec+skipSpec)
	r := w.run("run", "-f", "clicks.yaml", "--", w.self(""))
	if r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	w.lettersWritten(w.up())
	w.write("mended.yaml", "name: mended\nlanding: {partitions: 1}\ndecode: lines\n")
	w.ok("dataset", "apply", "-f", "mended.yaml")
	if out := w.ok("deadletter", "replay", "clicks", "--all", "--into", "mended"); !strings.Contains(out, fmt.Sprintf("%d records pushed into mended", len(bad))) {
		t.Error(out)
	}
	if out := w.ok("deadletter", "replay", "clicks", "--all", "--into", "mended"); !strings.Contains(out, fmt.Sprintf("0 records pushed into mended, %d were pushed before", len(bad))) {
		t.Error(out)
	}
	if v := decoded[view.Status](t, w.ok("dataset", "status", "mended", "-o", "json")); int(v.Counts.Listed) != len(bad) {
		t.Errorf("the replayed dataset is %+v, want %d records", v, len(bad))
	}
}

// letter puts a dead letter into the default folder of a dataset's dead letters.
func (w *world) letter(l deadletter.Letter) {
	w.t.Helper()
	l.Fill(1_700_000_000_000)
	line, err := l.Encode()
	if err == nil {
		err = deadletter.Folder{Root: w.state(), Path: "deadletters"}.Append(l.Dataset, [][]byte{line})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// A record may end with the byte of a line break, as the Avro long 5, which is 0x0A. Replay must push all
// its bytes.
func TestReplayTakesNothingAwayFromARecord(t *testing.T) {
	w := newWorld(t)
	w.badClicks(10)
	w.write("clicks.yaml", clicksSpec+skipSpec)
	w.write("mended.yaml", "name: mended\nlanding: {partitions: 1}\ndecode: lines\n")
	w.up("-f", "clicks.yaml", "-f", "mended.yaml")
	want := []string{"\n", "\r\n", "ab\n\n", "x\r", "plain"}
	for i, value := range want {
		w.letter(deadletter.Letter{Dataset: "clicks", Partition: "p", Offset: int64(i), Value: []byte(value), Size: int64(len(value))})
	}
	w.ok("deadletter", "replay", "clicks", "--all", "--into", "mended")
	var got []string
	for _, row := range decoded[[]map[string]any](t, w.ok("peek", "mended", "-n", "10", "-o", "json")) {
		for _, v := range row {
			got = append(got, fmt.Sprint(v))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("pushed were %q, want %q", got, want)
	}
}

// A row of a Parquet file has no bytes of its own. Its letter has the row as JSON, and replay pushes that.
// Replay refuses a letter that has nothing of its row, because an empty record would be an invented one.
func TestRowsOfParquetFilesAreReplayedAsJSON(t *testing.T) {
	w := newWorld(t)
	b, err := os.ReadFile("../../internal/parquet/testdata/nulls/pages.parquet")
	if err != nil {
		t.Fatal(err)
	}
	w.write("data/a.parquet", string(b))
	w.write("rows.yaml", `name: clicks
files: {root: data}
decode:
  format: parquet
  on_error: skip
  columns:
    - {name: label, path: x, dtype: float32}
    - {name: number, path: id, dtype: int64}
`)
	if r := w.run("run", "-f", "rows.yaml", "--", w.self("")); r.code != exitOK || !strings.Contains(r.out, "rows 267 ") { // x is null in 33 of 300
		t.Fatalf("%+v", r)
	}
	w.lettersWritten(w.up())
	w.write("mended.yaml", `name: mended
landing: {partitions: 1}
decode:
  format: json
  columns:
    - {name: label, path: /x, dtype: float32, default: -1}
    - {name: number, path: /id, dtype: int64}
`)
	w.ok("dataset", "apply", "-f", "mended.yaml")
	list := decoded[[]deadletter.Letter](t, w.ok("deadletter", "list", "clicks", "-o", "json"))
	if l := list[0]; len(list) != 33 || string(l.Value) != `{"x":null,"id":102}` || !l.Whole() || l.Form != deadletter.FormJSON || l.Offset != 102 {
		t.Fatalf("there are %d letters, and the first one is %+v", len(list), l)
	}
	if out := w.ok("deadletter", "show", "clicks", list[0].ID); !strings.Contains(out, "19 bytes, the row as JSON: it has no bytes of its own") {
		t.Error(out)
	}
	w.ok("deadletter", "replay", "clicks", "--all", "--into", "mended")
	var got, want []string
	for _, row := range decoded[[]map[string]any](t, w.ok("peek", "mended", "-n", "100", "-o", "json")) {
		got = append(got, fmt.Sprint(row["number"], row["label"]))
	}
	for i := range list {
		want = append(want, fmt.Sprint(list[i].Offset, -1))
	}
	if !slices.Equal(got, want) {
		t.Errorf("pushed were %q, want %q", got, want)
	}
	w.letter(deadletter.Letter{Dataset: "clicks", Partition: "p", Name: "a.parquet", Offset: 7, Size: -1})
	r := w.run("deadletter", "replay", "clicks", "--into", "mended", "clicks/p/0/0/7")
	if r.code != exitUsage || !strings.Contains(r.err, "nothing is kept of clicks/p/0/0/7, row 7 of a.parquet") {
		t.Errorf("%+v", r)
	}
	if out := w.ok("deadletter", "show", "clicks", "clicks/p/0/0/7"); !strings.Contains(out, "nothing of the row is kept") {
		t.Error(out)
	}
}
