package decode

import (
	"bytes"
	"encoding/csv"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/headrace/headrace/sources"
)

const threeStrings = `
format: csv
columns:
- {name: a, path: 0, dtype: bytes}
- {name: b, path: 1, dtype: bytes, default: "none"}
- {name: c, path: 2, dtype: bytes, default: "none"}
`

// oracleCSV reads text as one record with encoding/csv. ok is false if encoding/csv finds no record or several:
// our source would have cut at a line end outside quotes.
func oracleCSV(text string) (fields []string, err error, ok bool) {
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord = -1
	fields, err = r.Read()
	if err != nil {
		return nil, err, !strings.ContainsAny(text, "\r\n")
	}
	if _, again := r.Read(); again == nil || r.InputOffset() != int64(len(text)) {
		return nil, nil, false
	}
	return fields, nil, true
}

func FuzzCSVIsEncodingCSV(f *testing.F) {
	for _, s := range []string{"a,b,c", `"a","b""x",c`, `a"b,c,d`, `"a"b,c,d`, `"a,b,c`, `,,`, "a,b", `"",,"`, "\"x\ny\",1,2", `a,b,c,d,"`, "é,\xff,c\r", `"a",b,c` + "\r", "0123456789abcdef,0123456789,x"} {
		f.Add(s)
	}
	d := compile(f, threeStrings)
	slow := compile(f, threeStrings)
	slow.ops = nil
	f.Fuzz(func(t *testing.T, s string) {
		got, err := decodeAll(t, d, lines(s))
		again, errSlow := decodeAll(t, slow, lines(s))
		if (err == nil) != (errSlow == nil) || (err == nil && !reflect.DeepEqual(got, again)) {
			t.Fatalf("%q: the fast path gives %v %v, the other %v %v", s, got, err, again, errSlow)
		}
		want, wantErr, ok := oracleCSV(s)
		if !ok || strings.ContainsAny(s, "\r\n") {
			return
		}
		if wantErr == nil && len(want) > 3 {
			return // the decoder does not look at anything after the last wanted field
		}
		if len(s) > 0 && wantErr == nil && len(want) < 3 {
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(e.Reason, "fields") {
				t.Fatalf("%q: %d fields, and the error is %v", s, len(want), err)
			}
			return
		}
		if wantErr != nil {
			if err == nil && got != nil && !badBehindThird(s) {
				t.Fatalf("%q was accepted, but encoding/csv returns %v", s, wantErr)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q: %v, but encoding/csv reads %q", s, err, want)
		}
		for i, name := range []string{"a", "b", "c"} {
			w := want[i]
			if i > 0 && w == "" {
				w = "none"
			}
			if v := rowsOf(t, got, name)[0].([]byte); string(v) != w {
				t.Fatalf("%q: %s is %q, encoding/csv says %q", s, name, v, w)
			}
		}
	})
}

// badBehindThird says whether the first three fields are good by themselves.
func badBehindThird(s string) bool {
	for i := range s {
		if s[i] == ',' {
			if fields, err, _ := oracleCSV(s[:i]); err == nil && len(fields) == 3 {
				return true
			}
		}
	}
	return false
}

const manyKinds = `
format: tsv
on_error: default
columns:
- {name: h, paths: ["0..3"], dtype: int64, hash: {buckets: 1000, salt: "s"}, default: 7}
- {name: f, paths: ["4..6"], dtype: float32, default: "-1"}
- {name: i, paths: ["7", "8"], dtype: int32, default: 5}
- {name: l, path: 9, dtype: int64, missing: mask}
- {name: d, path: 10, dtype: float64, default: "0.5"}
- {name: g, path: 10, dtype: int64, default: "9"}
- {name: s, path: 11, dtype: string, default: "?"}
- {name: r, path: 12, dtype: int64, split: "|", hash: {buckets: 0}, weights: ":", max: 3}
- {name: b, path: 13, dtype: bool, default: "false"}
event_time: "14"
`

// FuzzFastPathIsTheSlowPath checks for any record that both paths through the code give the same columns, the
// same counts and the same error.
func FuzzFastPathIsTheSlowPath(f *testing.F) {
	f.Add("a\tbb\t68fd1e64\t0123456789abcdef0\t1\t2.5\t-3\t12\t-7\t9007199254740993\t1.5\tsome\t1:0.5|2|x:y|z\ttrue\t1700000000")
	f.Add("\t\t\t\t\t\t\t\t\t\t\t\t\t\t")
	f.Add("a\tb\tc\td\tx\t1e3\t99999999\t2147483648\t00000001\t+5\t7\t\xff\t|\t2\tyesterday")
	f.Add("a\tb\tc")
	same := bothPaths(f)
	f.Fuzz(func(t *testing.T, s string) {
		same(t, lines(s, s+s, s)) // the record next to others
	})
}

func TestFastPathIsTheSlowPathForLikelyRecords(t *testing.T) {
	same, r := bothPaths(t), seeded(t)
	texts := strings.Split(" 0 1 -1 +7 12 1234567 12345678 123456789 2147483647 2147483648 9223372036854775807 9223372036854775808 1.5 -0.25 1e10 1e-50 nan inf x true false 68fd1e64 68fd1e64a 0123456789abcdef 0123456789abcdefg a|b 1:2|3 :| \xff é 2024-05-06T07:08:09Z", " ")
	for range 4000 {
		fields := make([]string, 14+r.IntN(3))
		for i := range fields {
			fields[i] = texts[r.IntN(len(texts))]
			if r.IntN(2) == 0 {
				fields[i] = []string{"a", "bb", "ccc", "dddddddd", "1", "2", "3", "4", "5", "6", "7", "s", "8:1", "1", "9"}[min(i, 14)]
			}
		}
		same(t, lines(strings.Join(fields, "\t"), "follows"))
	}
}

// bothPaths returns a function that compares both paths on a batch, for on_error: default and fail.
func bothPaths(t testing.TB) func(testing.TB, *sources.Batch) {
	var pairs [][2]*Decoder
	for _, spec := range []string{manyKinds, strings.Replace(manyKinds, "on_error: default", "on_error: fail", 1)} {
		fast, slow := compile(t, spec), compile(t, spec)
		if fast.ops == nil {
			t.Fatal("this spec has no fast path, so this test compares nothing")
		}
		slow.ops = nil
		pairs = append(pairs, [2]*Decoder{fast, slow})
	}
	return func(t testing.TB, batch *sources.Batch) {
		t.Helper()
		for _, p := range pairs {
			a, errA := decodeAll(t, p[0], batch)
			b, errB := decodeAll(t, p[1], batch)
			if !reflect.DeepEqual(errA, errB) {
				t.Fatalf("%q: fast %v, slow %v", batch.Arena, errA, errB)
			}
			if x, y := p[0].Errors(), p[1].Errors(); !reflect.DeepEqual(x, y) {
				t.Fatalf("%q: fast counts %v, slow %v", batch.Arena, x, y)
			}
			if errA == nil && a != nil && !sameBits(a.Columns, b.Columns) {
				t.Fatalf("%q:\nfast %+v\nslow %+v", batch.Arena, a.Columns, b.Columns)
			}
		}
	}
}

func TestQuotedFieldsKeepLineEndsAndDoubledQuotes(t *testing.T) {
	f, err := decodeAll(t, compile(t, threeStrings), lines("\"x\r\ny\",\"say \"\"hi\"\"\",z\r"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "x\r\ny", "b": `say "hi"`, "c": "z"} {
		if v := rowsOf(t, f, name)[0].([]byte); !bytes.Equal(v, []byte(want)) {
			t.Errorf("%s is %q, not %q", name, v, want)
		}
	}
}

func TestBlankLinesAreNoRecords(t *testing.T) {
	f, err := decodeAll(t, compile(t, threeStrings), lines("", "a,b,c", "\r", "d,e,f"))
	if err != nil || f.Rows != 2 {
		t.Fatalf("%v, %v", f, err)
	}
	if f.Offsets[0] != 1 {
		t.Errorf("the first row begins at %d, not 1", f.Offsets[0])
	}
}
