//go:build pulsar

package main

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

func TestBadMessagesOfAPulsarTopicGoToATopic(t *testing.T) {
	b := pulsarBroker.get(t)
	topic, letters := newPulsarTopic(t, b, "clicks"), newPulsarTopic(t, b, "letters")
	values, bad, sum, good := badMessages(1000)
	a, err := testbroker.NewPulsarAppender(b, topic)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for partition := range 2 {
		for from := 0; from < 500; from += 100 {
			if err := a.Append(t.Context(), partition, int64(from), values[500*partition+from:][:100], func() {}); err != nil {
				t.Fatal(err)
			}
		}
	}
	lettersGoToATopic(t, topic, letters, func(topic string) string {
		return fmt.Sprintf("pulsar: {service: %q, admin: %q, topic: %s}", b.URL(), b.AdminURL(), topic)
	}, bad, sum, good)
}
