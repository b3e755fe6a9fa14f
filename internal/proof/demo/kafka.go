package demo

import (
	"context"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/examples/clicks"
	"github.com/headrace/headrace/internal/proof/demo/produce"
	"github.com/headrace/headrace/internal/proof/testbroker"
)

var kafkaQueue = queue{
	name: "Apache Kafka " + testbroker.KafkaVersion,
	start: func(ctx context.Context) (broker, error) {
		b, err := testbroker.StartKafka(ctx, testbroker.Options{})
		return kafkaBroker{b}, err
	},
	module: "confluent_kafka", pip: "confluent-kafka", program: clicks.GroupTrainer,
	rivals: []rival{
		{name: "group", kind: "consumer", title: "consumer group",
			about: "confluent-kafka, one consumer group, automatic commits (librdkafka's defaults, but " + sessionTimeout + ")"},
		{name: "careful", kind: "careful", title: "commits by hand", args: []string{"--commit", "each"},
			about: "the same with enable.auto.commit=false, and a synchronous commit after each batch that is learned"},
	},
}

// sessionTimeout is the only setting of the consumer group that differs from the library's default. With
// the default of 45 s, the partitions of a killed consumer wait that long, and the demo takes a minute.
const sessionTimeout = "session.timeout.ms=6000"

type kafkaBroker struct{ *testbroker.Broker }

func (b kafkaBroker) createTopic(ctx context.Context, name string, partitions int) error {
	return b.CreateTopic(ctx, name, partitions, nil)
}

func (b kafkaBroker) where() string     { return b.Addr() }
func (b kafkaBroker) partition() string { return "%s/%d" }
func (b kafkaBroker) places() string    { return "" }

func (b kafkaBroker) writer(topic string) (produce.Writer, error) {
	return kafkaWriter{testbroker.NewAppender(b.Addr(), topic)}, nil
}

// kafkaWriter writes without compression.
type kafkaWriter struct{ *testbroker.Appender }

func (w kafkaWriter) Append(ctx context.Context, partition int, end int64, values [][]byte, sending func()) error {
	return w.Appender.Append(ctx, partition, end, values, 0, sending)
}

func (b kafkaBroker) source(topic string) string { return kafkaSource(b.Addr(), topic) }

func kafkaSource(address, topic string) string {
	return fmt.Sprintf("kafka: {brokers: [%q], topic: %s, start: earliest, end: never}", address, topic)
}

func (b kafkaBroker) group(topic, name string) []string {
	return []string{"--brokers", b.Addr(), "--topic", topic, "--group", name, "--set", sessionTimeout}
}

func (b kafkaBroker) groupDone(ctx context.Context, topic, name string, heads []int64) bool {
	client, done := b.Client()
	defer done()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	ask := &kafkago.OffsetFetchRequest{GroupID: name, Topics: map[string][]int{topic: {}}}
	for p := range heads {
		ask.Topics[topic] = append(ask.Topics[topic], p)
	}
	reply, err := client.OffsetFetch(ctx, ask)
	if err != nil || reply.Error != nil || len(reply.Topics[topic]) != len(heads) {
		return false
	}
	for _, p := range reply.Topics[topic] {
		if p.Error != nil || p.CommittedOffset != heads[p.Partition] {
			return false
		}
	}
	return true
}
