package chaos

import (
	"testing"
	"time"
)

// On a busy machine records may come slowly: then the round has not failed. A round that goes on for
// ever after the last record has failed.
func TestTheEndHasItsTimeAfterTheLastRecord(t *testing.T) {
	now := time.Unix(0, 0)
	a := allowance{most: time.Minute, since: now}
	for n := range 100 {
		if now = now.Add(50 * time.Second); a.over(now, n+1, true) {
			t.Fatalf("the allowance is over after %d records, while more come", n+1)
		}
	}
	if a.over(now.Add(59*time.Second), 100, true) {
		t.Error("the allowance is over before a minute without a record")
	}
	if !a.over(now.Add(61*time.Second), 100, true) {
		t.Error("the producer stands still, and the allowance is never over")
	}
	if now = now.Add(61 * time.Second); !a.over(now, 101, false) {
		t.Error("all records are written, and the allowance is never over")
	}
}
