package pulsar

import (
	"errors"
	"syscall"
	"testing"

	"github.com/headrace/headrace/sources"
)

// A broker that is away says nothing about a range, so reading waits for it, however long it takes. A
// request that is answered with an error is tried three times.
func TestABrokerThatIsAwayIsSaidToBe(t *testing.T) {
	for err, want := range map[error]bool{
		explain(t.Context(), "pulsar://a", syscall.ECONNREFUSED): true,
		answered("http://a", "the ledgers", 503, "not ready"):    false,
		temporary(errors.New("an entry is missing")):             false,
	} {
		got, ok := errors.AsType[*sources.Temporary](err)
		if !ok || got.Away != want {
			t.Errorf("%v: %+v, away %v wanted", err, got, want)
		}
	}
}
