//go:build pulsar || rocketmq

package main

import (
	"encoding/base64"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/view"
)

// badMessages returns the values of n records of a topic in their order, and the set of the bad ones.
func badMessages(n int) (values [][]byte, bad map[string]bool, sum, good int) {
	bad = map[string]bool{}
	for i := range n {
		value := fmt.Sprintf("%d\t%d\tuser", i%2, i)
		if i%50 == 7 || i%50 == 8 {
			value = fmt.Sprintf("0\tx%d\tuser", i)
			bad[value] = true
		} else {
			sum, good = sum+i, good+1
		}
		values = append(values, []byte(value))
	}
	return values, bad, sum, good
}

// lettersGoToATopic trains on one topic and finds the dead letters in another one. part returns the part
// of a spec that names a topic.
func lettersGoToATopic(t *testing.T, topic, letters string, part func(topic string) string, bad map[string]bool, sum, good int) {
	t.Helper()
	w := newWorld(t)
	w.write("clicks.yaml", "name: clicks\n"+part(topic)+"\ndead_letter: {topic: "+letters+"}\n"+
		"decode:\n  format: tsv\n  on_error: skip\n  columns:\n    - {name: label, path: 0, dtype: float32}\n    - {name: number, path: 1, dtype: int64}\n    - {name: user, path: 2, dtype: string}\n")
	r := w.run("run", "-f", "clicks.yaml", "--", w.self(""))
	rows, got := read(t, r.out)
	if r.code != exitOK || int(rows) != good || int(got) != sum {
		t.Fatalf("the trainer got %d rows with the sum %d, want %d with %d: %+v", rows, got, good, sum, r)
	}
	up := w.up()
	up.until("all dead letters are written", func() bool {
		v := decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json"))
		return v.State == "done" && v.Bad != nil && v.Bad.Records == uint64(len(bad)) && v.Bad.Unwritten == 0
	})
	w.write("letters.yaml", "name: letters\n"+part(letters)+"\ndecode:\n  format: json\n  columns:\n"+
		"    - {name: id, path: /id, dtype: string}\n    - {name: value, path: /value, dtype: string}\n    - {name: column, path: /column, dtype: string}\n")
	w.ok("dataset", "apply", "-f", "letters.yaml")
	ids, without := map[string]bool{}, maps.Clone(bad)
	for _, row := range decoded[[]map[string]any](t, w.ok("peek", "letters", "-n", "1000", "-o", "json")) {
		value, err := base64.StdEncoding.DecodeString(fmt.Sprint(row["value"]))
		// A letter may be there twice with the same id: the first master may have ended after it had
		// written the letter and before it had noted that.
		if err != nil || row["column"] != "number" || !bad[string(value)] {
			t.Errorf("the letter %v has the value %q (%v), want that of a bad record", row, value, err)
		}
		ids[fmt.Sprint(row["id"])] = true
		delete(without, string(value))
	}
	if len(without) > 0 || len(ids) != len(bad) {
		t.Errorf("%d letters were written, but none of the bad records %v", len(ids), without)
	}
	w.write("missing.yaml", "name: missing\n"+part(topic)+"\ndead_letter: {topic: 'a topic'}\ndecode: {format: lines, on_error: skip}\n")
	if r := w.run("check", "-f", "missing.yaml"); r.code == exitOK || !strings.Contains(r.err, "dead_letter.topic: \"a topic\": is no name of a topic") {
		t.Errorf("a dead_letter topic with an invalid name got %+v", r)
	}
}
