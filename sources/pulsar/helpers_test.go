//go:build pulsar

package pulsar

import (
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func stats(t testing.TB, b *testbroker.Pulsar, topic string, into *internalStats) {
	t.Helper()
	data, err := b.Admin(t.Context(), "GET", "persistent/public/default/"+topic+"/internalStats", nil)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano()))) }
