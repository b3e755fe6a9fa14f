package pulsar

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/headrace/headrace/sources/brokers"
)

// moves has the fake note where subscriptions are moved, and move them.
func (a *fakeAdmin) moves(name string, ledgers ...[2]int64) func() map[string]string {
	var mu sync.Mutex
	moved := map[string]string{}
	a.serves = func(_ http.ResponseWriter, r *http.Request, path string) bool {
		sub, is := strings.CutSuffix(strings.TrimPrefix(path, name+"/subscription/"), "/resetcursor")
		if r.Method != http.MethodPost || !is {
			return false
		}
		var to messageAt
		_ = json.NewDecoder(r.Body).Decode(&to)
		a.layout(name, fmt.Sprintf(`{%q: {"markDeletePosition": "%d:%d"}}`, sub, to.Ledger, to.Entry-1), ledgers...)
		mu.Lock()
		defer mu.Unlock()
		moved[sub] = to.String()
		return true
	}
	return func() map[string]string {
		mu.Lock()
		defer mu.Unlock()
		return moved
	}
}

// A dataset was applied with start: latest. Before anything was read, its spec was replaced by one with start:
// earliest, or its master lost its state folder. NAME-retain stands at the end then, and keeps nothing of what
// the dataset reads now.
func TestMessagesAreKeptFromWhereADatasetBeginsAlsoIfItsSubscriptionStandsAfterThat(t *testing.T) {
	ledgers := [][2]int64{{5, 10}, {7, 10}}
	const atEnd = `{"x": {"markDeletePosition": "7:9"}, "x-retain": {"markDeletePosition": "7:9"}}`
	for _, one := range []struct {
		name    string
		cursors string
		listed  bool // segments of the partition are known already
		want    string
	}{
		{"the subscription stands at the end", atEnd, false, "map[x-retain:5:0]"},
		{"it stands where the dataset begins", `{"x": {"markDeletePosition": "7:9"}, "x-retain": {"markDeletePosition": "5:-1"}}`, false, "map[]"},
		{"an earlier master has read up to there", atEnd, true, "map[]"},
	} {
		a := newFakeAdmin(t)
		a.topic("t", one.cursors, ledgers...)
		moved := a.moves("t", ledgers...)
		s := a.open(t, brokers.Never, "t")
		ids, err := s.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if one.listed {
			allSegments(t, s, ids[0])
		}
		if err := s.Begin(t.Context(), ids); err != nil {
			t.Errorf("%s: %v", one.name, err)
		}
		if got := fmt.Sprint(moved()); got != one.want {
			t.Errorf("%s: moved are %s, want %s", one.name, got, one.want)
		}
	}
}
