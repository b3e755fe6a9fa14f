//go:build pulsar

package pulsar

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources/brokers"
)

// When Pulsar loads a topic, it removes the open ledger if that has no entry. No record is lost then: the
// segment is sealed as empty, and the next ledger is listed.
func TestAnEmptyLedgerThatPulsarRemovesIsSealed(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	for _, one := range []struct {
		name    string
		before  int // records before the empty ledger
		ttl     bool
		written int    // records written to the ledger after it was listed
		seen    bool   // the source has looked at the ledger since then; false: a new master has not
		want    string // how the ledger is listed then; "": not at all, so its records count as lost
	}{
		{"a topic without a record", 0, false, 0, false, "empty"},
		{"a topic with records", 30, false, 0, false, "empty"},
		{"a topic without a record, with a TTL", 0, true, 0, false, "empty"},
		{"a ledger that a TTL has passed and that was deleted", 0, true, 30, false, ""},
		{"such a ledger, in which records were seen a moment ago", 0, true, 30, true, ""},
	} {
		t.Run(one.name, func(t *testing.T) {
			topic := newTopic(t, b, 0)
			path := "persistent/public/default/" + topic
			admincall(t, b, http.MethodPost, path+"/retention", map[string]int{"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
			if one.ttl {
				admincall(t, b, http.MethodPost, path+"/messageTTL?messageTTL=3600", nil)
			}
			unload := func() { admincall(t, b, http.MethodPut, path+"/unload", nil) }
			if one.before > 0 {
				writeTo(t, b, topic, 0, 0, one.before)
				unload()
			}
			o := (&place{b: b, topic: topic, max: 1000}).options(brokers.Never)
			o.Retain, o.Progress = "x-retain", "x"
			s := mustOpen(t, o)
			defer s.Close()
			ids, err := s.Partitions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Begin(t.Context(), ids); err != nil {
				t.Fatal(err)
			}
			was := sourcetestSegments(t, s, ids[0])
			open := was[len(was)-1]
			if open.Sealed || open.Start != open.End {
				t.Fatalf("the last segment is no empty open one: %+v", was)
			}
			if one.written > 0 {
				writeTo(t, b, topic, 0, 0, one.written)
				if one.seen {
					if b, err := s.Bounds(t.Context(), ids); err != nil || b[0].Err != nil || b[0].Head.Offset == 0 {
						t.Fatal(b, err)
					}
				} else {
					s.sights = map[partition]sight{}
				}
				unload()
				expire(t, b, topic, ledgerOf(open.ID))
			} else {
				unload()
			}
			writeTo(t, b, topic, 0, one.before, 10)
			now := sourcetestSegments(t, s, ids[0])
			text := ""
			for _, g := range now {
				if g.ID == open.ID && g.Sealed && g.Start == g.End {
					text = "empty"
				} else if g.ID == open.ID {
					text = fmt.Sprintf("%+v", g)
				}
			}
			if text != one.want {
				t.Errorf("the ledger is listed as %q, want %q: %+v, then %+v", text, one.want, was, now)
			}
			if last := now[len(now)-1]; last.ID <= open.ID || last.Sealed {
				t.Errorf("no open ledger follows: %+v", now)
			}
		})
	}
}

// expire applies the topic's TTL, as Pulsar does every few minutes, until a ledger is deleted.
func expire(t testing.TB, b *testbroker.Pulsar, topic string, ledger int64) {
	t.Helper()
	path := "persistent/public/default/" + topic
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, _ = b.Admin(t.Context(), http.MethodPost, path+"/all_subscription/expireMessages/1", nil)
		_, _ = b.Admin(t.Context(), http.MethodPost, path+"/trim", nil)
		var l layout
		stats(t, b, topic, &l.internalStats)
		if _, there := l.find(ledger); !there {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("ledger %d is not deleted: %+v", ledger, l)
		}
	}
}
