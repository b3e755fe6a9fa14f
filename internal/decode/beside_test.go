package decode

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
)

// With a backfill, one frame may have rows of both inputs.
func TestTwoDecodersOfTheSameColumnsFillOneFrame(t *testing.T) {
	parse := func(text string) *dataset.Spec {
		s, err := dataset.Parse([]byte(text), "")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	live := parse("name: a\nkafka: {brokers: [k:9092], topic: a}\ndecode: {format: json, columns: [{name: id, path: /id, dtype: int64}, {name: tags, path: /tags/*, dtype: string}]}\n")
	old := parse("name: a\nfiles: {root: /d}\ndecode: {format: csv, columns: [{name: id, path: 0, dtype: int64}, {name: tags, path: 1, dtype: string, split: \"|\"}]}\n")
	first, err := Compile(live)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Compile(old, Beside(first))
	if err != nil {
		t.Fatal(err)
	}
	b, err := first.NewBuilder(4)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range []struct {
		dec  *Decoder
		text string
	}{{second, "1,x|y"}, {first, `{"id": 2, "tags": ["z"]}`}, {second, "3,"}, {first, `{"id": 4, "tags": ["p", "q", "r"]}`}} {
		if n, err := r.dec.Append(b, lines(r.text), 0, i+1); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	f := finish1(t, first, b)
	if got := fmt.Sprint(rowsOf(t, f, "id"), rowsOf(t, f, "tags")); got != "[1 2 3 4] [[x y] [z] [] [p q r]]" {
		t.Errorf("the rows are %s", got)
	}

	other := parse("name: a\nfiles: {root: /d}\ndecode: {format: csv, columns: [{name: id, path: 0, dtype: int32}, {name: tags, path: 1, dtype: string}]}\n")
	if _, err := Compile(other, Beside(first)); err == nil || !strings.Contains(err.Error(), "same columns") {
		t.Errorf("a decoder of other columns: got the error %v, want one with %q", err, "same columns")
	}
}
