package pulsar

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// If one subscription cannot be moved, or a topic is gone, the others are moved all the same. The error names
// each that was not moved. The source has listed nothing yet, like the master's.
func TestAPartitionThatFailsStopsNoOtherMove(t *testing.T) {
	a := newFakeAdmin(t)
	cursors := func(name, x string) {
		a.topic(name, fmt.Sprintf(`{"x": {"markDeletePosition": "%s"}, "x-retain": {"markDeletePosition": "%s"}}`, x, x), [2]int64{5, 10}, [2]int64{7, 10})
	}
	var all []string
	for n := range 20 {
		name := fmt.Sprintf("t-partition-%d", n)
		cursors(name, "5:-1")
		all = append(all, name)
	}
	cursors("whole", "5:-1")
	all = append(all, "whole", "gone")
	a.set("t/partitions", `{"partitions": 20}`)
	a.topic("again", "", [2]int64{90, 1})
	a.set("again/internal-info", `{"creationDate": "2026-01-31T00:00:00.001Z"}`)
	all = append(all, "again")
	var mu sync.Mutex
	moved := map[string]string{}
	a.serves = func(w http.ResponseWriter, r *http.Request, path string) bool {
		name, what, _ := strings.Cut(path, "/")
		if name == "t-partition-0" && what == "internalStats" { // its stats are asked for first
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}
		if r.Method != http.MethodPost || !strings.HasSuffix(what, "/resetcursor") {
			return false
		}
		var to messageAt
		_ = json.NewDecoder(r.Body).Decode(&to)
		cursors(name, fmt.Sprintf("%d:%d", to.Ledger, to.Entry-1))
		mu.Lock()
		defer mu.Unlock()
		moved[name+" "+what] = to.String()
		return true
	}
	var marks []sources.Mark
	id := func(name string) sources.PartitionID { return partition{"public/default/" + name, 1769731200001}.id() }
	for _, name := range all {
		marks = append(marks, sources.Mark{Partition: id(name), Position: position(7, at(4, 0))})
	}
	s := a.open(t, brokers.Never, "t", "whole", "gone", "again")
	err := s.Commit(t.Context(), marks)
	untold, ok := errors.AsType[*sources.Untold](err)
	if !ok || len(untold.Errs) != 3 || untold.Errs[id("t-partition-0")] == nil {
		t.Fatalf("got %v, want an error with the three partitions that were not moved", err)
	}
	for _, name := range []string{"gone", "again"} {
		if _, changed := errors.AsType[*sources.Changed](untold.Errs[id(name)]); !changed {
			t.Errorf("%s: %v", name, untold.Errs[id(name)])
		}
	}
	for _, name := range all {
		want := "7:4"
		if untold.Errs[id(name)] != nil {
			want = ""
		}
		if got := moved[name+" subscription/x/resetcursor"]; got != want {
			t.Errorf("%s is moved to %q, want %q", name, got, want)
		}
	}
	if err := s.Commit(t.Context(), []sources.Mark{{Partition: "pulsar:public/default/other@1"}}); err == nil || !strings.Contains(err.Error(), "not a partition of dataset test") {
		t.Errorf("moving the subscription of another topic: got the error %v, want one with %q", err, "not a partition of dataset test")
	}
	if p, err := parsePartition(id("t")); err != nil || p.id() != id("t") {
		t.Errorf("%v, %v", p, err)
	}
	for _, bad := range []sources.PartitionID{"", "pulsar:t", "kafka:t@1", "pulsar:t@x"} {
		if p, err := parsePartition(bad); err == nil {
			t.Errorf("%q is %v", bad, p)
		}
	}
}

func TestAnErrorOfManyPartitionsNamesSome(t *testing.T) {
	var ids []sources.PartitionID
	var errs []error
	for i := range 9 {
		ids, errs = append(ids, sources.PartitionID(fmt.Sprint("p", i))), append(errs, fmt.Errorf("error %d", i))
	}
	errs[0] = nil
	err := sources.UntoldOf(ids, errs)
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, []string{"error 1", "error 2", "error 3", "and 5 more partitions"}) {
		t.Errorf("got %q, want %q", got, []string{"error 1", "error 2", "error 3", "and 5 more partitions"})
	}
	if !errors.Is(err, errs[8]) || sources.UntoldOf(ids, make([]error, len(ids))) != nil {
		t.Error(err)
	}
}
