package serve_test

import (
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// People see the name of a topic, not its id. That holds after a restart of the master too.
func TestAPartitionIsCalledByItsNameForGood(t *testing.T) {
	noLeaks(t)
	st := memstore.New()
	m := startMaster(t, st, nil)
	_, err := m.apply("name: clicks\nkafka: {brokers: ['b:1'], topic: clicks, end: never}\ndecode: lines\n")
	m.must(err, m.srv.Join(t.Context(), 1, []serve.NewPartition{
		{ID: "kafka:c/t/0", Name: "clicks/0", Segments: []sources.Segment{{Start: 0, End: 20, Locator: []byte("loc")}}},
		{ID: "nameless", Segments: []sources.Segment{{Start: 0, End: 20, Locator: []byte("loc")}}}}))
	called := func() {
		t.Helper()
		state, err := m.datasets().State(t.Context(), &headracev1.StateRequest{Name: "clicks"})
		if err != nil || len(state.Partitions) != 2 {
			t.Fatalf("%v (%v)", state, err)
		}
		if p := state.Partitions[0]; p.Label != "clicks/0" || p.Identity != "kafka:c/t/0" {
			t.Errorf("partition %q is called %q", p.Identity, p.Label)
		}
		if p := state.Partitions[1]; p.Label != "nameless" {
			t.Errorf("the partition without a name is called %q", p.Label)
		}
	}
	called()
	m.must(m.stop())
	m = startMaster(t, st, nil)
	called()
	m.must(m.stop())
}
