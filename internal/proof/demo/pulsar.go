package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/headrace/headrace/examples/clicks"
	"github.com/headrace/headrace/internal/proof/demo/produce"
	"github.com/headrace/headrace/internal/proof/testbroker"
)

var pulsarQueue = queue{
	name: "Apache Pulsar " + testbroker.PulsarVersion,
	start: func(ctx context.Context) (broker, error) {
		b, err := testbroker.StartPulsar(ctx, testbroker.PulsarOptions{EntriesPerLedger: 400})
		return pulsarBroker{b}, err
	},
	module: "pulsar", pip: "pulsar-client", program: clicks.PulsarTrainer,
	rivals: []rival{{name: "group", kind: "consumer", title: "consumer group",
		about: "pulsar-client, one shared subscription, each message acknowledged when it is learned (the library's defaults)"}},
}

type pulsarBroker struct{ *testbroker.Pulsar }

func (b pulsarBroker) createTopic(ctx context.Context, name string, partitions int) error {
	if err := b.Deduplicate(ctx); err != nil {
		return err
	}
	return b.CreateTopic(ctx, name, partitions)
}

func (b pulsarBroker) where() string     { return b.URL() }
func (b pulsarBroker) partition() string { return "%s-partition-%d" }

// places: offsets in Pulsar name entry and message. So the writer puts the number of a record in its
// partition into its key.
func (b pulsarBroker) places() string {
	return `    - {name: place, path: "$key", dtype: int64}
`
}

func (b pulsarBroker) writer(topic string) (produce.Writer, error) {
	return testbroker.NewPulsarAppender(b.Pulsar, topic)
}

func (b pulsarBroker) source(topic string) string {
	return fmt.Sprintf("pulsar: {service: %q, admin: %q, topic: %s, start: earliest, end: never}", b.URL(), b.AdminURL(), topic)
}

func (b pulsarBroker) group(topic, name string) []string {
	return []string{"--service", b.URL(), "--topic", topic, "--subscription", name}
}

func (b pulsarBroker) groupDone(ctx context.Context, topic, name string, heads []int64) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	text, err := b.Admin(ctx, "GET", "persistent/public/default/"+topic+"/partitioned-stats?getPreciseBacklog=true", nil)
	var stats struct {
		Subscriptions map[string]struct {
			Backlog int64 `json:"msgBacklog"`
		} `json:"subscriptions"`
	}
	if err != nil || json.Unmarshal(text, &stats) != nil {
		return false
	}
	s, ok := stats.Subscriptions[name]
	return ok && s.Backlog == 0
}
