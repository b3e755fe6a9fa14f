package dataset_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	. "github.com/headrace/headrace/internal/dataset"
)

func TestDiffSaysWhatMayChangeUnderReaders(t *testing.T) {
	old := mustParse(t, criteo)
	if d := Diff(old, mustParse(t, criteo+"passes: 1\n")); d != nil {
		t.Errorf("writing a default is a change: %v", d)
	}
	for _, c := range []struct {
		what, text string
		want       []string
	}{
		{"more passes", criteo + "passes: 3\n", []string{"passes: 1 -> 3 true"}},
		{"lease", criteo + "lease: {target: 5s, max: 1MiB}\n", []string{"lease.max: 1073741824 -> 1048576 true", `lease.target: "2s" -> "5s" true`}},
		{"shuffle", criteo + "shuffle: {seed: 7}\n", []string{"shuffle.block: (not set) -> 262144 false", "shuffle.seed: (not set) -> 7 false"}},
		{"resume", criteo + "resume: start\n", []string{`resume: (not set) -> "start" true`}},
		{"root", strings.Replace(criteo, "/data/clicks", "/data/c2", 1), []string{`files.root: "/data/clicks" -> "/data/c2" false`}},
		{"dtype", strings.Replace(criteo, "path: 0, dtype: float32", "path: 0, dtype: float64", 1), []string{`decode.columns.label.dtype: "float32" -> "float64" false`}},
		{"salt", strings.Replace(criteo, "salt: v1", "salt: v2", 1), []string{`decode.columns.cat.hash.salt: "v1" -> "v2" false`}},
	} {
		t.Run(c.what, func(t *testing.T) {
			var got []string
			for _, ch := range Diff(old, mustParse(t, c.text)) {
				got = append(got, fmt.Sprint(ch, " ", ch.Compatible))
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if fewer := Diff(mustParse(t, criteo+"passes: 3\n"), old); len(fewer) != 1 || fewer[0].Compatible {
		t.Errorf("fewer passes: %v", fewer)
	}
}

// A failed dataset goes on if its spec now says what to do with the records that stopped it. Other changes do
// not restart it.
func TestOnlySomeChangesRepairAFailedDataset(t *testing.T) {
	for _, c := range []struct {
		was, is string
		want    []string
	}{
		{criteo, criteo, nil},
		{criteo, criteo + "on_loss: continue\nlease: {target: 5s}\n", []string{`on_loss: "stop" -> "continue"`}},
		{criteo, criteo + "lease: {target: 5s}\n", nil},
		{"name: clicks\nof_a_later_version: true\n", criteo + "on_loss: continue\n", nil},
	} {
		if got := Repaired(c.was, mustParse(t, c.is)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
