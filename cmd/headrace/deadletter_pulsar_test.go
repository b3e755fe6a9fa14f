//go:build pulsar

package main

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

func TestBadMessagesOfAPulsarTopicGoToATopic(t *testing.T) {
	b, err := testbroker.StartPulsar(t.Context(), testbroker.PulsarOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, topic := range []string{"clicks", "clicks-bad"} {
		if err := b.CreateTopic(t.Context(), topic, 2); err != nil {
			t.Fatal(err)
		}
	}
	values, bad, sum, good := badMessages(1000)
	a, err := testbroker.NewPulsarAppender(b, "clicks")
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
	lettersGoToATopic(t, func(topic string) string {
		return fmt.Sprintf("pulsar: {service: %q, admin: %q, topic: %s}", b.URL(), b.AdminURL(), topic)
	}, bad, sum, good)
}
