package pulsar

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// Somebody has moved NAME-retain past messages that are needed (pulsar-admin namespaces clear-backlog). Pulsar may
// delete them then, as soon as the retention of the topic ends.
func TestMessagesThatTheSubscriptionHasPassedAreNotForetoldToStay(t *testing.T) {
	const never = sources.Never
	for _, one := range []struct {
		name, at  string
		ttl       int
		retention [2]int // minutes, MiB
		room      int64
		retained  bool
		byAge     bool
	}{
		{"it stands before them", "5:-1", 0, [2]int{0, 0}, never, true, false},
		{"it has passed them", "7:9", 0, [2]int{0, 0}, untilAny, false, false},
		{"it has passed them, and a retention keeps all", "7:9", 0, [2]int{-1, -1}, never, false, false},
		{"it has passed them, and a retention keeps them for an hour", "7:9", 0, [2]int{60, -1}, never, false, true},
		{"a TTL may have moved it", "7:9", 3600, [2]int{0, 0}, never, false, true},
	} {
		a := newFakeAdmin(t)
		a.topic("t", fmt.Sprintf(`{"x-retain": {"markDeletePosition": %q}}`, one.at), [2]int64{5, 10}, [2]int64{7, 10})
		a.set("t/messageTTL", "%d", one.ttl)
		a.set("t/retention", `{"retentionTimeInMinutes": %d, "retentionSizeInMB": %d}`, one.retention[0], one.retention[1])
		a.set("t/backlogQuotaMap", "{}")
		a.serves = func(w http.ResponseWriter, r *http.Request, _ string) bool {
			if r.Method == http.MethodHead {
				w.Header().Set("X-Pulsar-publish-time", time.Now().Format(time.RFC3339Nano))
			}
			return r.Method == http.MethodHead
		}
		s := a.open(t, brokers.Never, "t")
		ids, err := s.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.Keeps(t.Context(), []sources.Mark{{Partition: ids[0], Position: position(5, 0)}}, time.Hour)
		if err != nil || all[0].Err != nil {
			t.Fatal(err, all)
		}
		if k := all[0]; k.Room != one.room || k.Retained != one.retained || (k.ByAge != never) != one.byAge {
			t.Errorf("%s: %+v", one.name, k)
		}
	}
}
