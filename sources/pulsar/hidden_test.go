package pulsar

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headrace/headrace/sources/brokers"
)

// Pulsar hides all entries from the first message of an open transaction on, whatever ledger it is in. A
// dataset with end: latest ends before it.
func TestTheLatestMessageIsTheLastBeforeAnOpenTransaction(t *testing.T) {
	layout := [][2]int64{{5, 10}, {7, 1}, {8, 0}, {9, 100}, {12, 0}}
	last := messageAt{Ledger: 9, Entry: 99}
	for _, rolled := range []bool{false, true} {
		hiddenFrom(t, layout, last, rolled)
	}
}

func hiddenFrom(t *testing.T, layout [][2]int64, last messageAt, rolled bool) {
	for _, g := range layout {
		for first := int64(0); first < g[1]+1; first++ { // the first hidden entry of ledger g
			if g[0] > 9 || first == g[1] && g[0] != 9 {
				continue
			}
			a := newFakeAdmin(t)
			a.topic("t", "", layout...)
			a.set("t/lastMessageId", `{"ledgerId": %d, "entryId": %d}`, last.Ledger, last.Entry)
			asked := 0
			a.serves = func(w http.ResponseWriter, _ *http.Request, path string) bool {
				var ledger, entry int64
				if n, _ := fmt.Sscanf(path, "t/ledger/%d/entry/%d", &ledger, &entry); n != 2 {
					return false
				}
				asked++
				if ledger > g[0] || ledger == g[0] && entry >= first {
					w.Header().Set("X-Pulsar-txn-uncommitted", "true")
				}
				return true
			}
			s := a.open(t, brokers.Latest, "t")
			p := partition{"public/default/t", 1}
			before := layout
			if rolled {
				before = layout[:3] // ledger 9 begins after the source has asked for the layout
			}
			a.topic("t", "", before...)
			l, err := s.layoutOf(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			a.topic("t", "", layout...)
			if got, err := s.visible(t.Context(), p, &l); err != nil || got != position(g[0], at(first, 0)) || asked > 24 {
				t.Errorf("the first hidden entry is %d:%d, but the dataset ends at %d:%d (%v), after %d questions; rolled %v", g[0], first, ledgerOf(got.Segment), entryOf(got.Offset), err, asked, rolled)
			}
		}
	}
}

// Just after Pulsar has loaded a topic, it says that all messages belong to an open transaction, or that
// there is no message. A dataset must not begin or end by that answer.
func TestWhatPulsarHidesWhileItLoadsATopicIsThere(t *testing.T) {
	const loading, ready, none = `{"state": "Initializing"}`, `{"state": "Ready", "recoverEndTime": %d}`, "none"
	for _, c := range []struct {
		name   string
		states []string // answers one after the other; the last one is repeated
		shows  int      // the look at which the last message is not hidden any more; 0: never
		last   int64    // the entry of the last message; -1: there is none
		want   int64    // the entry after the last one; -1: a temporary error
	}{
		{"while it loads", []string{loading}, 0, 9, -1},
		{"while it loads, as if it were empty", []string{loading}, 0, -1, -1},
		{"it is loaded in between", []string{fmt.Sprintf(ready, 7)}, 2, 9, 10},
		{"it is loaded again in between", []string{fmt.Sprintf(ready, 7), loading}, 0, 9, -1},
		{"it was loaded again in between", []string{fmt.Sprintf(ready, 7), fmt.Sprintf(ready, 8)}, 0, 9, -1},
		{"a transaction is open", []string{fmt.Sprintf(ready, 7)}, 0, 9, 0},
		{"only markers", []string{`{"state": "NoSnapshot"}`}, 0, -1, 0},
		{"a Pulsar without transactions, only markers", []string{none}, 0, -1, 0},
	} {
		a := newFakeAdmin(t)
		a.topic("t", "", [2]int64{5, 10})
		ledger := int64(5)
		if c.last < 0 {
			ledger = -1
		}
		a.set("t/lastMessageId", `{"ledgerId": %d, "entryId": %d}`, ledger, c.last)
		asked, looks := 0, 0
		a.serves = func(w http.ResponseWriter, _ *http.Request, path string) bool {
			switch {
			case path == "/admin/v3/transactions/transactionBufferStats/public/default/t":
				state := c.states[min(asked, len(c.states)-1)]
				if asked++; state == none {
					w.WriteHeader(http.StatusServiceUnavailable)
					state = `{"reason": "This Broker is not configured with transactionCoordinatorEnabled=true."}`
				}
				_, _ = io.WriteString(w, state)
			case strings.HasPrefix(path, "t/ledger/5/entry/"):
				if path == "t/ledger/5/entry/9" {
					looks++
				}
				w.Header().Set("X-Pulsar-txn-uncommitted", fmt.Sprint(c.shows == 0 || looks < c.shows))
			default:
				return false
			}
			return true
		}
		s := a.open(t, brokers.Latest, "t")
		p := partition{"public/default/t", 1}
		l, err := s.layoutOf(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.visible(t.Context(), p, &l)
		if c.want < 0 {
			if !isTemporary(err) {
				t.Errorf("%s: it ends at %d, %v", c.name, entryOf(got.Offset), err)
			}
		} else if err != nil || got != position(5, at(c.want, 0)) {
			t.Errorf("%s: it ends at %d, %v; want %d", c.name, entryOf(got.Offset), err, c.want)
		}
	}
}
