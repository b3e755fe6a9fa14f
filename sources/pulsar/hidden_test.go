package pulsar

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/headrace/headrace/sources/brokers"
)

// From the first message of an open transaction on, all entries are hidden, in whatever ledger
// it lies. A dataset with end: latest ends before it.
func TestTheLatestMessageIsTheLastBeforeAnOpenTransaction(t *testing.T) {
	layout := [][2]int64{{5, 10}, {7, 1}, {8, 0}, {9, 100}, {12, 0}}
	last := messageAt{Ledger: 9, Entry: 99}
	for _, rolled := range []bool{false, true} {
		hiddenFrom(t, layout, last, rolled)
	}
}

func hiddenFrom(t *testing.T, layout [][2]int64, last messageAt, rolled bool) {
	for _, g := range layout {
		for first := int64(0); first < g[1]+1; first++ { // of the entries of g
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
				before = layout[:3] // ledger 9 begins after this layout was asked for
			}
			a.topic("t", "", before...)
			l, err := s.layoutOf(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			a.topic("t", "", layout...)
			if got, err := s.visible(t.Context(), p, &l); err != nil || got != position(g[0], at(first, 0)) || asked > 12 {
				t.Errorf("the first hidden entry is %d:%d, and it ends at %d:%d (%v), after %d questions; rolled %v", g[0], first, ledgerOf(got.Segment), entryOf(got.Offset), err, asked, rolled)
			}
		}
	}
}
