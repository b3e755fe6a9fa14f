//go:build pulsar

package testbroker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// Other tests count entries. So the records of one Append must be one entry, even if the client takes long
// to gather them. A client that flushes by a timer would have cut some of these in two.
func TestEachAppendIsOnePulsarEntry(t *testing.T) {
	b, err := StartPulsar(t.Context(), PulsarOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := b.CreateTopic(t.Context(), "t", 1); err != nil {
		t.Fatal(err)
	}
	a, err := NewPulsarAppender(b, "t")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	values := make([][]byte, 5000)
	for i := range values {
		values[i] = []byte(strconv.Itoa(i))
	}
	appends := int64(0)
	for began := time.Now(); appends < 3 || time.Since(began) < 4*time.Second; appends++ {
		if err := a.Append(t.Context(), 0, appends*int64(len(values)), values, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := b.Admin(t.Context(), http.MethodGet, "persistent/public/default/t-partition-0/internalStats", nil)
	if err != nil {
		t.Fatal(err)
	}
	var stats struct{ EntriesAddedCounter int64 }
	if err := json.Unmarshal(text, &stats); err != nil {
		t.Fatal(err)
	}
	if stats.EntriesAddedCounter != appends {
		t.Errorf("%d appends made %d entries, want as many", appends, stats.EntriesAddedCounter)
	}
	if err := a.Append(t.Context(), 0, 0, make([][]byte, pulsarAppendMost+1), func() {}); err == nil {
		t.Error("Append took more records than fit into one entry, want an error")
	}
}

// Every port of Pulsar is one that we hold for it. A port that Pulsar would choose may be given to a
// connection before Pulsar listens, and Pulsar then ends while it starts.
func TestPulsarChoosesNoPortItself(t *testing.T) {
	b, err := StartPulsar(t.Context(), PulsarOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	again := func() error { return errors.Join(b.Kill(), b.Start(t.Context())) }
	for _, begin := range []func() error{func() error { return nil }, again} {
		if err := begin(); err != nil {
			t.Fatal(err)
		}
		for _, port := range b.ports {
			c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Fatalf("Pulsar does not listen on each of its ports %v: %v", b.ports, err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
