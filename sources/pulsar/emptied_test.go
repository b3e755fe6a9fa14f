package pulsar

import (
	"testing"

	"github.com/headrace/headrace/sources/brokers"
)

// A TTL moves NAME-retain past the records of the open ledger, and Pulsar deletes the ledger. The ledger was
// empty when it was listed, but records were seen in it later. They are lost, so it does not count as empty.
func TestALedgerInWhichRecordsWereSeenDoesNotCountAsEmpty(t *testing.T) {
	for _, one := range []struct {
		name string
		seen int64 // entries that the ledger had at the last look
		gone bool  // true: it is not listed any more; false: it is listed as sealed and empty
	}{
		{"it was empty a moment ago", 0, false},
		{"it had a record a moment ago", 1, true},
	} {
		t.Run(one.name, func(t *testing.T) {
			a := newFakeAdmin(t)
			a.topic("t", "", [2]int64{5, 10}, [2]int64{7, 0})
			a.set("t/messageTTL", "3600")
			a.set("t/retention", `{"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}`)
			a.set("t/backlogQuotaMap", "{}")
			s := a.open(t, brokers.Never, "t")
			ids, err := s.Partitions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			was := allSegments(t, s, ids[0])
			if last := was[len(was)-1]; ledgerOf(last.ID) != 7 || last.Sealed || last.Start != last.End {
				t.Fatalf("the last segment is no empty open one: %+v", was)
			}
			a.layout("t", "", [2]int64{5, 10}, [2]int64{7, one.seen})
			if b, err := s.Bounds(t.Context(), ids); err != nil || b[0].Err != nil {
				t.Fatal(b, err)
			}
			a.layout("t", `{"x-retain": {"markDeletePosition": "9:-1"}}`, [2]int64{9, 2})
			now := allSegments(t, s, ids[0])
			gone := true
			for _, g := range now {
				if ledgerOf(g.ID) == 7 {
					gone = false
					if !g.Sealed || g.Start != g.End {
						t.Errorf("it is listed as %+v", g)
					}
				}
			}
			if gone != one.gone {
				t.Errorf("ledger 7 is not listed any more: %v, want %v: %+v", gone, one.gone, now)
			}
			if last := now[len(now)-1]; ledgerOf(last.ID) != 9 || last.End != at(2, 0) {
				t.Errorf("the open ledger is not listed: %+v", now)
			}
		})
	}
}
