package pulsar

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// fakeAdmin is a scripted admin API. It has an answer in JSON for each path that is set, below
// /admin/v2/persistent/public/default/. It answers 404 to any other request.
type fakeAdmin struct {
	url string

	mu      sync.Mutex
	answers map[string]string
	serves  func(w http.ResponseWriter, r *http.Request, path string) bool // if set, it is asked first; true: it has answered
}

func newFakeAdmin(t testing.TB) *fakeAdmin {
	a := &fakeAdmin{answers: map[string]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/admin/v2/persistent/public/default/")
		a.mu.Lock()
		text, known := a.answers[path]
		serves := a.serves
		a.mu.Unlock()
		switch {
		case serves != nil && serves(w, r, path):
		case known:
			_, _ = io.WriteString(w, text)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"reason": "not found"}`)
		}
	}))
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

func (a *fakeAdmin) set(path, format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[path] = fmt.Sprintf(format, args...)
}

// topic adds a topic without partitions. Each ledger is given by its number and its entries; the last one is
// open. cursors is JSON.
func (a *fakeAdmin) topic(name, cursors string, ledgers ...[2]int64) {
	a.set(name+"/partitions", `{"partitions": 0}`)
	a.set(name+"/internal-info", `{"creationDate": "2026-01-30T00:00:00.001Z"}`)
	a.layout(name, cursors, ledgers...)
}

// layout sets the ledgers of a topic as Pulsar shows them: with 0 entries for the open one.
func (a *fakeAdmin) layout(name, cursors string, ledgers ...[2]int64) {
	var all []string
	for i, g := range ledgers {
		entries := g[1]
		if i == len(ledgers)-1 {
			entries = 0
		}
		all = append(all, fmt.Sprintf(`{"ledgerId": %d, "entries": %d, "size": %d}`, g[0], entries, entries*100))
	}
	open := ledgers[len(ledgers)-1]
	if cursors == "" {
		cursors = "{}"
	}
	a.set(name+"/internalStats", `{"lastConfirmedEntry": "%d:%d", "currentLedgerEntries": %d, "ledgers": [%s], "cursors": %s}`,
		open[0], open[1]-1, open[1], strings.Join(all, ","), cursors)
}

// open opens a dataset of some of the fake's topics.
func (a *fakeAdmin) open(t testing.TB, end brokers.At, topics ...string) *Source {
	t.Helper()
	s, err := Open(Options{Dataset: "test", Service: "pulsar://127.0.0.1:1", Admin: a.url, Topics: topics, Retain: "x-retain", Progress: "x",
		Start: End{At: brokers.Earliest}, End: End{At: end}, MaxRecord: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func allSegments(t testing.TB, s *Source, id sources.PartitionID) []sources.Segment {
	t.Helper()
	all, err := s.Segments(t.Context(), id, -1, 100)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
