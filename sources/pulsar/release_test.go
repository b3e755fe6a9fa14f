package pulsar

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headrace/headrace/sources/brokers"
)

// The master releases a dataset with a source that has listed nothing. If a topic is gone, or its broker
// refuses, the other topics are still released.
func TestATopicThatIsGoneKeepsNoOtherFromBeingReleased(t *testing.T) {
	a := newFakeAdmin(t)
	a.topic("first", "", [2]int64{5, 1})
	a.set("last/partitions", `{"partitions": 2}`)
	var mu sync.Mutex
	var removed []string
	a.serves = func(w http.ResponseWriter, r *http.Request, path string) bool {
		if r.Method != http.MethodDelete {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		removed = append(removed, path)
		if strings.HasPrefix(path, "first/") && strings.HasSuffix(path, "/x-retain") {
			w.WriteHeader(http.StatusForbidden)
		} else if path == "last-partition-1/subscription/x" {
			w.WriteHeader(http.StatusNotFound) // the subscription was removed before
		}
		return true
	}
	err := a.open(t, brokers.Never, "gone", "first", "last").Release(t.Context())
	want := []string{"first/subscription/x", "first/subscription/x-retain", "last-partition-0/subscription/x", "last-partition-0/subscription/x-retain",
		"last-partition-1/subscription/x", "last-partition-1/subscription/x-retain"}
	if slices.Sort(removed); !slices.Equal(removed, want) {
		t.Errorf("removed are %q, want %q", removed, want)
	}
	if err == nil || !strings.Contains(err.Error(), "x-retain of first") || strings.Contains(err.Error(), "gone") || strings.Contains(err.Error(), "last") {
		t.Errorf("got %v, want an error that names only the topic whose broker refuses", err)
	}
	if err := a.open(t, brokers.Never, "gone").Release(t.Context()); err != nil {
		t.Errorf("releasing a topic that is gone: %v", err)
	}
}
