package demo

import (
	"context"
	"fmt"

	"github.com/headrace/headrace/internal/proof/demo/produce"
)

// queue is a kind of broker that a demo can read a topic of, beside the vendor's own
// consumers.
type queue struct {
	name  string // "Apache Kafka 4.1.1"
	start func(context.Context) (broker, error)

	// The rivals: what their trainers import, and how that is installed; the program; and
	// the ways in which it is run, at the same time.
	module, pip string
	program     []byte
	rivals      []rival
}

// rival is one consumer group that is compared with.
type rival struct {
	name  string   // of its journals' folder, and at the broker
	kind  string   // of its processes
	title string   // of its column in the report
	about string   // what it is, with its settings
	args  []string // of its trainers, beside those that all have
}

// queues are by --source. A new kind is one entry here and one file.
var queues = map[string]queue{Kafka: kafkaQueue, Pulsar: pulsarQueue, RocketMQ: rocketmqQueue}

// broker is one that runs, and is killed and started again on the same folder.
type broker interface {
	Start(ctx context.Context) error
	Kill() error
	Close() error
	PID() int

	// createTopic makes an empty topic.
	createTopic(ctx context.Context, name string, partitions int) error
	// where is its address, for people.
	where() string
	// partition is the format of the names that readers give a topic's partitions, of
	// its name and a number.
	partition() string
	// writer writes to the topic, each record once.
	writer(topic string) (produce.Writer, error)
	// source is the source's part of the dataset's spec, to be read from the earliest on
	// and without an end.
	source(topic string) string
	// places is the column that says where a record lies, where offsets do not; "" else.
	places() string
	// group are arguments of a rival's trainers: where the topic is, and how a group with
	// that name reads it.
	group(topic, name string) []string
	// groupDone says whether the group has told the broker that it is done with every
	// record; false while nobody answers.
	groupDone(ctx context.Context, topic, name string, heads []int64) bool
}

// live says whether a source is a topic that is written meanwhile.
func live(source string) bool {
	_, ok := queues[source]
	return ok
}

func topicYAML(b broker) string {
	return fmt.Sprintf("name: %s\n%s\n", datasetName, b.source(topicName)) + decodeYAML() + b.places()
}
